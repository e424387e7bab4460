//! The parts of a description, each with its place in the file.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use contract::properties::{self, ADDRESS, AddressSource, Value};
use document::{Document, Located, Mistake};

use super::source::Source;

pub struct NodeTable {
    pub name: Located<String>,
    /// The node's address, with the prefix length of its subnet.
    pub address: Located<String>,
    /// The properties of this node alone, by their keys.
    pub properties: BTreeMap<String, Located<Source>>,
}

impl NodeTable {
    /// The node's address. `None` if the value is not a valid one.
    pub fn address(&self) -> Option<Ipv4Addr> {
        match properties::find(ADDRESS)?.parse(&self.address.value) {
            Ok(Value::AddressSource(AddressSource::Static(address))) => Some(address.addr()),
            _ => None,
        }
    }
}

pub struct Text {
    path: PathBuf,
    text: String,
}

impl Text {
    pub(super) fn of(path: &Path, text: String) -> Self {
        Self { path: path.to_owned(), text }
    }

    pub fn mistake<T>(&self, at: &Located<T>, message: impl Into<String>) -> Mistake {
        Document::new(&self.path, &self.text).mistake(at, message)
    }
}

/// The parts of the file that a check of a site needs: it reports mistakes at their lines.
#[derive(Clone, Copy)]
pub struct FileContext<'a> {
    pub text: &'a Text,
    pub nodes: &'a [NodeTable],
}
