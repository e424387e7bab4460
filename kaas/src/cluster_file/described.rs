//! What stands in a description, with its place in the file.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use contract::properties::{self, ADDRESS, AddressSource, Value};
use image::document::{Document, Located, Mistake};

use super::source::Source;

pub struct NodeTable {
    pub name: Located<String>,
    /// Its address, with the prefix length of its subnet.
    pub address: Located<String>,
    /// What it alone is told, by the properties' keys.
    pub properties: BTreeMap<String, Located<Source>>,
}

impl NodeTable {
    /// Its address; none if what stands there is none.
    pub fn address(&self) -> Option<Ipv4Addr> {
        match properties::find(ADDRESS)?.parse(&self.address.value) {
            Ok(Value::AddressSource(AddressSource::Static(address))) => Some(address.addr()),
            _ => None,
        }
    }
}

/// The file itself.
pub struct Text {
    path: PathBuf,
    text: String,
}

impl Text {
    pub(super) fn of(path: &Path, text: String) -> Self {
        Self { path: path.to_owned(), text }
    }

    /// A mistake at something that was read.
    pub fn mistake<T>(&self, at: &Located<T>, message: impl Into<String>) -> Mistake {
        Document::new(&self.path, &self.text).mistake(at, message)
    }
}

/// What stands in the file of what is looked at on a site: mistakes are said where it stands.
#[derive(Clone, Copy)]
pub struct FileContext<'a> {
    /// The file itself.
    pub text: &'a Text,
    pub nodes: &'a [NodeTable],
}
