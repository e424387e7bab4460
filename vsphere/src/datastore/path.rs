//! Paths of files on datastores.

use std::fmt;
use std::str::FromStr;

/// A file or a directory on a datastore. Written `[datastore] directory/file`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatastorePath {
    /// The datastore's name.
    pub datastore: String,
    /// The path from the datastore's top. Empty for the top itself.
    pub path: String,
}

/// A text that is not a path on a datastore.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path on a datastore: those are written \"[datastore] directory/file\"")]
pub struct InvalidPath(pub String);

impl DatastorePath {
    /// A path on a datastore.
    pub fn new(datastore: impl Into<String>, path: impl Into<String>) -> Self {
        Self { datastore: datastore.into(), path: path.into() }
    }

    /// The path of `name` in this directory.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let path =
            if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path.trim_end_matches('/')) };
        Self { datastore: self.datastore.clone(), path }
    }

    /// The path of the parent directory. `None` for the datastore's top.
    pub fn parent(&self) -> Option<Self> {
        let path = self.path.trim_end_matches('/');
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        (!path.is_empty()).then(|| Self::new(&self.datastore, above))
    }
}

impl FromStr for DatastorePath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let parts = text.trim().strip_prefix('[').and_then(|rest| rest.split_once(']'));
        match parts {
            Some((datastore, path)) if !datastore.is_empty() => Ok(Self::new(datastore, path.trim_start())),
            _ => Err(InvalidPath(text.to_owned())),
        }
    }
}

impl fmt::Display for DatastorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.datastore)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, " {}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_it_is_written() {
        for text in ["[ds 1]", "[ds 1] vm/disk one.vmdk", "[ds] a/b/c"] {
            assert_eq!(text.parse::<DatastorePath>().unwrap().to_string(), text);
        }
        assert_eq!("[ds]a/b".parse(), Ok(DatastorePath::new("ds", "a/b")));
        for wrong in ["", "ds", "[]", "[ds", "ds] a", "/vmfs/volumes/ds/a"] {
            assert_eq!(wrong.parse::<DatastorePath>(), Err(InvalidPath(wrong.to_owned())));
        }
    }

    #[test]
    fn a_path_leads_down_and_up() {
        let top = DatastorePath::new("ds", "");
        assert_eq!(top.join("a").join("b").to_string(), "[ds] a/b");
        assert_eq!(top.join("a/").join("b").parent(), Some(top.join("a")));
        assert_eq!((top.join("a").parent(), top.parent()), (Some(top.clone()), None));
    }
}
