//! Numbers in words.

/// Formats a time: `41230` nanoseconds as `41.2 us`.
#[doc(hidden)]
pub fn time(nanos: u64) -> String {
    match nanos as f64 {
        // A value that would be rounded up to 1000 gets the next unit.
        n if n < 999_950.0 => format!("{:.1} us", n / 1e3),
        n if n < 999_995_000.0 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// Formats a number of cells: `1 cell`, `2 cells`.
#[doc(hidden)]
pub fn cells(count: usize) -> String {
    if count == 1 { "1 cell".into() } else { format!("{count} cells") }
}

/// Formats a number of bytes: `1536` as `1.5 KiB`.
#[doc(hidden)]
pub fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        b if b < 1024.0 => format!("{b} B"),
        b if b < 1023.95 * 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{:.1} MiB", b / 1024.0 / 1024.0),
    }
}
