//! Enums whose variants are words that people and programs are shown.

/// An enum of words in kebab-case, each with the text that is written and what it means.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$of_one:meta])* $variant:ident $text:expr, $meaning:literal;)+ }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$of_one])* #[doc = $meaning] $variant,)+
        }

        impl $name {
            /// Every word with what it means.
            pub const TABLE: &[(Self, &str)] = &[$((Self::$variant, $meaning),)+];

            /// The word, as it is printed and written.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

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

pub(crate) use words;
