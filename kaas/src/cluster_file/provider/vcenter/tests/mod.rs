//! Mistakes of `[provider.vsphere]` are reported at their lines, for the table alone and against a vCenter.

mod judge;
mod table;

use std::path::Path;

use crate::cluster_file::ClusterFile;
use crate::cluster_file::provider::DescribedProvider;

const EXAMPLE: &str = include_str!("../../../../commands/control/deployment/examples/vsphere.toml");

/// The example with replaced parts.
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
        DescribedProvider::Added(_) => panic!("no vCenter"),
    }
}

/// The prefix of a mistake: the number of the line that contains `part`.
fn line(text: &str, part: &str) -> String {
    format!("{}: ", 1 + text.lines().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}")))
}
