//! The parts of the documentation that are made from the code's own tables, and a document's blocks that hold them.

use std::fmt::Write;

use clap::{Command, CommandFactory};
use contract::{codes, paths, ports, properties};
use fleet::{deploy, upgrade, workers};
use vsphere::{On, PRIVILEGES, Privilege, WISHED};

/// The generated parts, by the name of their block.
pub fn parts() -> [(&'static str, String); 10] {
    [
        ("properties", properties::reference_markdown()),
        ("findings", codes::codes_markdown()),
        ("refusals", table(upgrade::CODES)),
        ("reasons", table(upgrade::REASONS)),
        ("workers", table(workers::REASONS)),
        ("deployments", table(deploy::REASONS)),
        ("paths", paths::markdown()),
        ("ports", ports::markdown()),
        ("privileges", privileges()),
        ("commands", commands(&crate::Arguments::command())),
    ]
}

/// `document` with each part in its block, between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
///
/// # Errors
/// The name of a part that has no such block.
pub fn renew(document: &str) -> Result<String, &'static str> {
    parts().into_iter().try_fold(document.to_owned(), |document, (name, part)| {
        let (before, rest) = document.split_once(&format!("<!-- {name}:begin -->")).ok_or(name)?;
        let (_, after) = rest.split_once(&format!("<!-- {name}:end -->")).ok_or(name)?;
        let part = part.trim();
        Ok(format!("{before}<!-- {name}:begin -->\n{part}\n<!-- {name}:end -->{after}"))
    })
}

/// Codes with their meaning.
fn table(codes: &[(&str, &str)]) -> String {
    let mut text = String::from("| Code | When |\n| --- | --- |\n");
    for (code, meaning) in codes {
        let _ = writeln!(text, "| `{code}` | {meaning} |");
    }
    text
}

/// What an account of a vCenter needs, by the object that it needs it on.
fn privileges() -> String {
    let mut text = String::from("| On | Privilege | For |\n| --- | --- | --- |\n");
    for Privilege { id, on, purpose } in PRIVILEGES.iter().chain(WISHED) {
        let on = match on {
            On::Folder => "the folders of VMs and templates",
            On::ClustersFolder => "a Provider's folder",
            On::Datastore => "the datastores of VMs and of the journal",
            On::Network => "each network",
            On::Pool => "the resource pool",
            On::Cluster => "the cluster",
            On::Root => "the root of the vCenter, for `storage-policy` alone",
        };
        let _ = writeln!(text, "| {on} | `{id}` | {purpose} |");
    }
    text
}

/// Each command that does something, with its first line of help.
fn commands(program: &Command) -> String {
    let mut text = String::from("| Command | What it does |\n| --- | --- |\n");
    list(program, program.get_name(), &mut text);
    text
}

fn list(command: &Command, name: &str, text: &mut String) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let name = format!("{name} {}", below.get_name());
        if below.has_subcommands() {
            list(below, &name, text);
        } else {
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "| `{name}` | {about} |");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_says_what_the_code_says() {
        let reference = include_str!("../../docs/reference.md");
        let renewed = renew(reference).expect("a block for each part");
        assert!(renewed == reference, "docs/reference.md is behind the code: `make reference` renews it");
    }

    #[test]
    fn a_document_without_a_block_is_refused() {
        assert_eq!(renew("nothing here"), Err("properties"));
    }

    #[test]
    fn commands_are_those_that_do_something_and_are_shown() {
        let hidden = Command::new("door").hide(true);
        let lab = Command::new("lab").subcommands([Command::new("up").about("Starts a lab"), hidden]);
        assert_eq!(
            commands(&Command::new("kaas").subcommand(lab)),
            "| Command | What it does |\n| --- | --- |\n| `kaas lab up` | Starts a lab |\n"
        );
    }
}
