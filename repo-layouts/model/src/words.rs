//! Enums whose variants are words of the contract: one place for the exact bytes of each.

/// An enum of words, each with the text that is written and what it means.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($variant:ident $text:literal $meaning:literal)+ }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = $meaning] $variant,)+
        }

        impl $name {
            /// Every word with what it means, in the order of the contract.
            pub const TABLE: &[(Self, &str)] = &[$((Self::$variant, $meaning),)+];

            /// The exact text, as it is written and compared.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The word in PascalCase, as conditions have their types and reasons.
            pub const fn pascal_case(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }

            /// The word with exactly this text; `None` if the contract has none.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        $crate::words::as_text!($name);
    };
}

/// Prints and writes a type with `as_str(self) -> &'static str` as that text.
#[macro_export]
macro_rules! shown_as_str {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

/// Lets a type with `as_str(self) -> &'static str` stand wherever its text may.
macro_rules! as_text {
    ($name:ident) => {
        $crate::shown_as_str!($name);

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl From<$name> for &'static str {
            fn from(word: $name) -> Self {
                word.as_str()
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                self.as_str() == text
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                self.as_str() == *text
            }
        }

        impl PartialEq<$name> for str {
            fn eq(&self, word: &$name) -> bool {
                self == word.as_str()
            }
        }

        impl PartialEq<$name> for &str {
            fn eq(&self, word: &$name) -> bool {
                *self == word.as_str()
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, word: &$name) -> bool {
                self == word.as_str()
            }
        }
    };
}

pub(crate) use {as_text, words};
