//! Setters of public fields, for options that may get more of them and that no file has.

/// Writes a chainable setter for each listed field. Fields after `optional` take the value or an option.
///
/// ```
/// #[derive(Default)]
/// #[non_exhaustive]
/// struct Options {
///     stride: usize,
///     padding: Option<usize>,
/// }
///
/// precast_base::setters! {
///     Options: stride stride: usize; optional padding padding: usize
/// }
///
/// let options = Options::default().stride(2).padding(1);
/// assert_eq!((options.stride, options.padding), (2, Some(1)));
/// ```
#[macro_export]
macro_rules! setters {
    ($owner:ident: $($set:ident $field:ident: $type:ty),* $(; optional $($set_some:ident $some:ident: $inner:ty),*)?) => {
        impl $owner {
            $(
                #[doc = concat!("Sets the field `", stringify!($field), "`.")]
                #[must_use]
                pub fn $set(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
            $($(
                #[doc = concat!("Sets the field `", stringify!($some), "`.")]
                #[must_use]
                pub fn $set_some(mut self, $some: impl Into<Option<$inner>>) -> Self {
                    self.$some = $some.into();
                    self
                }
            )*)?
        }
    };
}
