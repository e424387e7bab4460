//! What is wrong with `[provider.vsphere]` is said at its line, alone and held against what a vCenter has.

mod judge;
mod table;

use std::path::Path;

use crate::cluster_file::ClusterFile;
use crate::cluster_file::provider::DescribedProvider;

const EXAMPLE: &str = include_str!("../../../../deploy/examples/vsphere.toml");

/// The example with parts of it otherwise.
fn with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(EXAMPLE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

fn file(text: &str) -> ClusterFile {
    ClusterFile::parse(Path::new("cluster.toml"), text.to_owned()).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn vcenter(file: &ClusterFile) -> &super::VcenterProvider {
    match &file.provider {
        DescribedProvider::Vcenter(vcenter) => vcenter,
        other => panic!("{other:?}"),
    }
}

/// The line of a text that has this in it, as mistakes begin with it.
fn line(text: &str, part: &str) -> String {
    format!("{}: ", 1 + text.lines().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}")))
}
