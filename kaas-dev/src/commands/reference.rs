//! `kaas-dev reference`: generates the tables of the documentation from the code, and writes them into the blocks of its pages.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use contract::{codes, paths, ports, properties};
use fleet::engine::Code;
use fleet::{CODE_TABLES, CodeTable};
use kaas::commands::schemas::{OutputSchema, schemas};
use kaas::commands::{Arguments, leaves};
use kaas::say;
use vsphere::{On, PRIVILEGES, Privilege, WISHED};

#[derive(Args)]
pub struct Reference {
    /// Instead, renew the tables in the pages of this directory, between `<!-- NAME:begin -->` and `<!-- NAME:end -->`
    #[arg(long, value_name = "DIRECTORY")]
    write: Option<PathBuf>,
    /// Also write the JSON Schemas of outputs for scripts into this directory
    #[arg(long, value_name = "DIRECTORY", requires = "write")]
    schemas: Option<PathBuf>,
}

/// Prints the tables, or renews them in the pages.
pub fn run(arguments: &Reference) -> anyhow::Result<()> {
    let Some(directory) = &arguments.write else {
        for (_, _, part) in parts() {
            say!("{part}");
        }
        return Ok(());
    };
    for page in pages() {
        let path = directory.join(page);
        let document = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let renewed = renew(page, &document);
        let renewed = renewed.map_err(|part| anyhow::anyhow!("{} has no block for {part}", path.display()))?;
        image::renew::write(&path, &renewed)?;
    }
    arguments.schemas.as_deref().map_or(Ok(()), write_schemas)
}

fn write_schemas(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let files = schema_files()?;
    for (name, text) in &files {
        image::renew::write(&directory.join(name), text)?;
    }
    for orphan in orphans(directory, &files)? {
        std::fs::remove_file(&orphan).with_context(|| format!("removing {}", orphan.display()))?;
    }
    Ok(())
}

/// The schema of the agent's status. A test that may use the agent renews it.
const STATUS: &str = "endpoint-status.json";

/// The files of the directory that belong to no schema.
fn orphans(directory: &Path, files: &[(String, String)]) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| !path.ends_with(STATUS) && !files.iter().any(|(name, _)| path.ends_with(name)));
    Ok(paths)
}

/// The files of the schemas, each with its text.
fn schema_files() -> anyhow::Result<Vec<(String, String)>> {
    let file = |one: &OutputSchema| -> anyhow::Result<(String, String)> {
        let text = serde_json::to_string_pretty(one.schema.as_value())?;
        Ok((format!("{}.json", one.name), text + "\n"))
    };
    schemas().iter().map(file).collect()
}

/// The pages with generated tables.
fn pages() -> BTreeSet<&'static str> {
    parts().into_iter().map(|(page, _, _)| page).collect()
}

/// The generated tables, each with its page and the name of its block.
fn parts() -> Vec<(&'static str, &'static str, String)> {
    let mut parts = vec![
        ("properties.md", "properties", properties::reference_markdown()),
        ("codes.md", "findings", codes::codes_markdown()),
        ("paths.md", "paths", paths::markdown()),
        ("ports.md", "ports", ports::markdown()),
        ("privileges.md", "privileges", privileges()),
        ("commands.md", "commands", commands(&Arguments::command())),
        ("commands.md", "development-commands", commands(&super::Arguments::command())),
    ];
    for tables in CODE_TABLES.chunk_by(|one, next| one.block == next.block) {
        parts.push(("codes.md", tables[0].block, table(tables)));
    }
    parts
}

/// Returns the `document` of a page with each of its tables in its block, between `<!-- NAME:begin -->` and
/// `<!-- NAME:end -->`. The error names a table that has no block.
fn renew(page: &str, document: &str) -> Result<String, &'static str> {
    let parts = parts().into_iter().filter(|(of, _, _)| *of == page);
    let mut parts = parts.map(|(_, name, part)| (name, part));
    parts.try_fold(document.to_owned(), |document, (name, part)| {
        let (before, rest) = document.split_once(&format!("<!-- {name}:begin -->")).ok_or(name)?;
        let (_, after) = rest.split_once(&format!("<!-- {name}:end -->")).ok_or(name)?;
        let part = part.trim();
        Ok(format!("{before}<!-- {name}:begin -->\n{part}\n<!-- {name}:end -->{after}"))
    })
}

/// A table of codes with their meanings and remedies.
fn table(tables: &[CodeTable]) -> String {
    let mut text = String::from("| Code | When | What to do |\n| --- | --- | --- |\n");
    for Code { code, meaning, action } in tables.iter().flat_map(|table| table.codes) {
        let _ = writeln!(text, "| `{code}` | {meaning} | {action} |");
    }
    text
}

/// The privileges of a vCenter account, each with the object that it is needed on.
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

/// Each visible command that is not a group, with the first line of its help.
fn commands(program: &Command) -> String {
    let mut text = String::from("| Command | What it does |\n| --- | --- |\n");
    for (words, command) in leaves(program) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "| `{words}` | {about} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");

    #[test]
    fn reference_pages_equal_the_generated_tables() {
        for page in pages() {
            let document = std::fs::read_to_string(Path::new(DOCS).join("reference").join(page)).unwrap();
            let renewed = renew(page, &document).expect("a block for each part");
            assert!(renewed == document, "docs/reference/{page} is behind the code: `make reference` renews it");
        }
    }

    /// The Markdown files in a directory and below.
    fn pages_below(directory: &Path) -> Vec<PathBuf> {
        let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let pages = paths.flat_map(|path| if path.is_dir() { pages_below(&path) } else { vec![path] });
        pages.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
    }

    #[test]
    fn schema_files_equal_the_types() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/schemas");
        let files = schema_files().unwrap();
        for (name, text) in &files {
            let written = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
            assert!(written == *text, "docs/reference/schemas/{name} is behind the code: `make reference` renews it");
        }
        let orphans = orphans(&directory, &files).unwrap();
        assert!(orphans.is_empty(), "files without a schema, which `make reference` removes: {orphans:?}");
    }

    #[test]
    fn schema_directory_loses_only_orphans() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("former.json"), "").unwrap();
        write_schemas(directory.path()).unwrap();
        assert!(!directory.path().join("former.json").exists() && directory.path().join("version.json").exists());
    }

    /// The options in calls of a program that the called command does not have.
    fn unknown_options(program: &Command, text: &str) -> Vec<String> {
        let begin = format!("{} ", program.get_name());
        let begins =
            |at: &usize| !text[..*at].ends_with(|letter: char| letter.is_alphanumeric() || "-/_.".contains(letter));
        let starts = text.match_indices(&begin).map(|(at, _)| at).filter(begins);
        let calls = starts.flat_map(|at| {
            let call = text[at..].split(['\n', '`', '#', '|', ';', '>', ',']).next().unwrap_or_default();
            let (mut command, mut path, mut wrong) = (program, program.get_name().to_owned(), Vec::new());
            for word in call.split_whitespace().skip(1).take_while(|word| *word != "--") {
                let option = word
                    .trim_start_matches('[')
                    .trim_end_matches([']', '.', ')'])
                    .split('=')
                    .next()
                    .unwrap_or_default();
                match (command.find_subcommand(word), option.strip_prefix("--")) {
                    (Some(below), _) => (command, path) = (below, format!("{path} {word}")),
                    // A group has no options. Its commands have.
                    (None, Some(option)) if !command.has_subcommands() && !["help", "verbose"].contains(&option) => {
                        let is_known = command.get_arguments().any(|argument| argument.get_long() == Some(option));
                        wrong.extend((!is_known).then(|| format!("{path} --{option}")));
                    }
                    _ => {}
                }
            }
            wrong
        });
        calls.collect()
    }

    #[test]
    fn pages_use_only_options_that_commands_have() {
        let programs = [kaas::commands::program(), super::super::program()];
        let docs = Path::new(DOCS);
        for page in pages_below(docs).into_iter().chain([docs.join("../README.md")]) {
            let text = std::fs::read_to_string(&page).unwrap();
            let unknown: Vec<String> = programs.iter().flat_map(|program| unknown_options(program, &text)).collect();
            assert!(unknown.is_empty(), "{} gives options that the commands have not: {unknown:?}", page.display());
        }
        let text = "`kaas control upgrade commit --downgrade`\n    kaas-dev lab up --nodes 3 # --not\nkaas control backup --wait, --more";
        assert_eq!(
            unknown_options(&programs[0], text),
            ["kaas control upgrade commit --downgrade", "kaas control backup --wait"]
        );
        assert_eq!(unknown_options(&programs[1], "kaas-dev lab up --nodes 3 --days"), ["kaas-dev lab up --days"]);
    }

    #[test]
    fn document_without_a_block_is_rejected() {
        assert_eq!(renew("properties.md", "nothing here"), Err("properties"));
    }

    #[test]
    fn command_table_omits_groups_and_hidden_commands() {
        let hidden = Command::new("door").hide(true);
        let lab = Command::new("lab").subcommands([Command::new("up").about("Starts a lab"), hidden]);
        assert_eq!(
            commands(&Command::new("kaas-dev").subcommand(lab)),
            "| Command | What it does |\n| --- | --- |\n| `kaas-dev lab up` | Starts a lab |\n"
        );
    }
}
