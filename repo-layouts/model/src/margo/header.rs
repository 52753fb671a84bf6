//! `apiVersion` and `kind`: which of Margo's texts a document follows.

use serde::ser::SerializeMap;

use crate::yaml::{Field, Reader};

/// What a document says of its own form, as written, so that a round trip keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// `apiVersion`. `1.0.0-rc.3` has `v1` in an ApplicationDescription and none elsewhere.
    pub api_version: Option<String>,
    /// Whether there is a `kind`, which only the pre-draft has.
    pub kind: bool,
}

/// The headers that one kind of document may have.
#[derive(Debug)]
pub(super) struct Form {
    /// The values of `apiVersion` that are read, the pre-draft's first.
    pub(super) versions: &'static [&'static str],
    /// The one value of `kind`.
    pub(super) kind: &'static str,
    /// The values of `apiVersion` in the text of 2024.
    pub(super) of_2024: &'static [&'static str],
    /// What a document of 2024 lacks, in words.
    pub(super) lacks: &'static str,
}

impl Form {
    /// Reads the header of a mapping. A part of it that is there has to be right.
    pub(super) fn read(&self, reader: &mut Reader<'_>) -> Header {
        let version = reader.optional("apiVersion", |field| field.word(self.versions));
        let kind = reader.has("kind");
        reader.optional("kind", |field| field.word(&[self.kind]));
        Header { api_version: version, kind }
    }

    /// The header of a document that is wholly of the pre-draft.
    pub(super) fn pre_draft(&self) -> Header {
        Header { api_version: self.versions.first().map(|version| (*version).to_owned()), kind: true }
    }

    /// Refuses a document of the text of 2024 with one problem that says so, because what else is wrong in it says
    /// nothing.
    pub(super) fn refuse_2024(&self, field: &Field<'_>) -> Option<()> {
        let Some(version) = field.node().get("apiVersion").filter(|node| self.is_of_2024(node.text())) else {
            return Some(());
        };
        let found = version.text().unwrap_or_default();
        let at = field.problem(format!("is `{found}`, of Margo's 2024 text, where {}", self.lacks));
        let hint = "write the document as in 1.0.0-rc.3, or as in the pre-draft of 2025";
        field.report(at.at(version.span.line, version.span.column).key("apiVersion").hint(hint));
        None
    }

    fn is_of_2024(&self, version: Option<&str>) -> bool {
        version.is_some_and(|version| self.of_2024.contains(&version))
    }

    /// Writes the header as it was.
    pub(super) fn write<M: SerializeMap>(&self, header: &Header, map: &mut M) -> Result<(), M::Error> {
        if let Some(version) = &header.api_version {
            map.serialize_entry("apiVersion", version)?;
        }
        if header.kind {
            map.serialize_entry("kind", self.kind)?;
        }
        Ok(())
    }
}
