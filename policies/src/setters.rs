//! Setters of public fields, for options that may get more of them: those of this package, which does without the derive of
//! `#[options]`, and those of ops and calls, which no file has.

/// Writes a chainable setter for each listed field. Fields after `optional` take the value or an option.
#[doc(hidden)]
#[macro_export]
macro_rules! __setters {
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
