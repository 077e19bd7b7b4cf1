//! Codes of four bits, two in a byte.

/// Packs the low halves of codes, the first of each pair into the lower half of its byte. With an odd number of codes, the
/// upper half of the last byte is 0.
///
/// ```
/// use precast_lowbit::{pack_nibbles, unpack_nibbles};
///
/// assert_eq!(pack_nibbles(&[0x1, 0x2, 0xf]), [0x21, 0x0f]);
/// assert_eq!(unpack_nibbles(&[0x21, 0x0f]), [0x1, 0x2, 0xf, 0x0]);
/// ```
pub fn pack_nibbles(codes: &[u8]) -> Vec<u8> {
    codes.chunks(2).map(|pair| pair[0] & 0xf | pair.get(1).map_or(0, |second| second << 4)).collect()
}

/// Returns the two codes of each byte, that of the lower half first.
pub fn unpack_nibbles(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| [byte & 0xf, byte >> 4]).collect()
}
