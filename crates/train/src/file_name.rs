//! Names that are valid on any system.

/// Returns whether a name is valid for a folder on any system.
pub(super) fn is_file_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '+' | '=');
    (1..=100).contains(&name.chars().count()) && name.chars().all(plain) && !name.starts_with('.')
}
