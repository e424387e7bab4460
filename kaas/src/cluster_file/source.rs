//! The sources of values that the file does not contain, such as secrets in a file that operators share.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use document::{Table, beside};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// A value of the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Text(String),
    File(PathBuf),
    /// The name of an environment variable.
    Environment(String),
    /// The operator types the value. This is the text of the question.
    Prompt(String),
}

/// Why a value in the file itself is refused.
pub const NO_PLACE: &str = "is, or may hold, a secret, which has no place in this file: give { file = \"…\" }, \
                            { environment = \"…\" } or { prompt = \"…\" }";

impl Source {
    /// Reads a value: a string, or a table that names a source. Files are relative to the directory of `path`, the document.
    pub fn read(path: &Path, table: &Table<'_, '_>, key: &str) -> Option<Self> {
        if !table.is_table(key) {
            return table.optional(key, |text| Ok(Self::Text(text.to_owned())));
        }
        table.optional_table(key, |from| {
            let here = |name: &str| Ok(Self::File(beside(path, name)));
            let given = [
                from.optional("file", here),
                from.optional("environment", |name| Ok(Self::Environment(name.to_owned()))),
                from.optional("prompt", |words| Ok(Self::Prompt(words.to_owned()))),
            ];
            let given: Vec<Self> = given.into_iter().flatten().collect();
            if given.len() != 1 {
                from.mistake_here("says where a value comes from: give one of file, environment and prompt");
            }
            given.into_iter().next()
        })?
    }

    /// The value. Line breaks in it are escaped as a VM's form requires. Fails if it is empty.
    pub fn value(&self) -> anyhow::Result<Zeroizing<String>> {
        let text = match self {
            Self::Text(text) => return Ok(Zeroizing::new(text.clone())),
            Self::File(path) => {
                Zeroizing::new(fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?)
            }
            Self::Environment(name) => {
                let set = std::env::var(name).ok();
                Zeroizing::new(set.with_context(|| format!("the variable {name} of the environment is not set"))?)
            }
            Self::Prompt(words) => asked(words).with_context(|| format!("asking for {words}"))?,
        };
        let text = Zeroizing::new(text.trim_end_matches(['\n', '\r']).replace("\r\n", "\n").replace('\n', "\\n"));
        ensure!(!text.is_empty(), "{self} is empty");
        Ok(text)
    }

    /// Whether the operator must type the value.
    pub fn is_prompt(&self) -> bool {
        matches!(self, Self::Prompt(_))
    }
}

/// The source as text, without the value.
impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("the value"),
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Environment(name) => write!(f, "the variable {name}"),
            Self::Prompt(words) => write!(f, "what is typed for {words}"),
        }
    }
}

/// Reads a line from the terminal, with echo off.
fn asked(words: &str) -> anyhow::Result<Zeroizing<String>> {
    let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").context("there is no terminal")?;
    write!(terminal, "{words}: ")?;
    let before = tcgetattr(&terminal)?;
    let mut hidden = before.clone();
    hidden.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(&terminal, SetArg::TCSAFLUSH, &hidden)?;
    let typed = line(&terminal);
    tcsetattr(&terminal, SetArg::TCSAFLUSH, &before)?;
    writeln!(terminal)?;
    typed
}

fn line(terminal: &File) -> anyhow::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    BufReader::new(terminal).read_line(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_value_has_escaped_lines_and_must_exist() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, "one\r\ntwo\nthree\n").unwrap();
        let source = Source::File(path.clone());
        assert_eq!(source.value().unwrap().as_str(), "one\\ntwo\\nthree");
        fs::write(&path, "\n").unwrap();
        assert!(source.value().unwrap_err().to_string().ends_with("keys is empty"));
        fs::remove_file(&path).unwrap();
        assert!(format!("{:#}", source.value().unwrap_err()).contains("keys: No such file"));
        let unset = Source::Environment("KAAS_TEST_THAT_NOBODY_SETS".to_owned());
        assert!(unset.value().unwrap_err().to_string().contains("is not set"));
        assert_eq!(Source::Text("a".to_owned()).value().unwrap().as_str(), "a");
    }
}
