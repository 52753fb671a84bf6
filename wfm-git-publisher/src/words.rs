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

        repo_model::shown_as_str!($name);
    };
}

pub(crate) use words;
