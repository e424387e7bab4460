//! The output of the commands. A failure to write progress is ignored: a full disk, a closed pipe or a lost terminal must not
//! end a run. A failure to write a result is an error: scripts read it. A reader that ends early, such as `head`, is no failure.
//! Names of VMs, pods and products come from other systems, so control characters in them are replaced by spaces. In JSON and
//! YAML they are escaped, and no text changes.

use std::io::{self, Write};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use anyhow::Context;
use clap::builder::EnumValueParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use controller::documents::yaml;
use fleet::nodes::is_plain;
use log::{Level, LevelFilter, Log, Metadata, Record};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use crate::styled::Text;

/// Writes progress to standard output, as `println!`. Errors of the write are ignored.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::say(&format!($($text)*)) };
}

/// The format of a command's output
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines of text
    Table,
    /// One JSON object
    Json,
    /// The same object in YAML
    Yaml,
}

/// The option of each command with an output for scripts.
impl Args for Output {
    fn augment_args(command: Command) -> Command {
        let output = Arg::new("output").short('o').long("output").value_name("FORMAT").help_heading("Output");
        let output = output.value_parser(EnumValueParser::<Self>::new()).default_value("table");
        command.arg(output.help("Output format. With json and yaml, progress goes to standard error"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Output {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(matches.get_one("output").copied().unwrap_or(Self::Table))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Output {
    /// Writes progress. If scripts read the result, progress goes to standard error.
    pub fn tell(self, what: &str) {
        match self {
            Self::Table => say(what),
            Self::Json | Self::Yaml => warn(what),
        }
    }

    /// Writes a result: `value` for scripts, `text` for people. Returns the exit status of a command that ends with it.
    pub fn result<T: Into<Text>>(self, value: &impl Serialize, text: impl FnOnce() -> T) -> anyhow::Result<ExitCode> {
        if !self.value(value)? {
            hand_over(&mut io::stdout().lock(), &shown(&text().into(), AutoStream::choice(&io::stdout())))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the result for scripts. Returns false, and writes nothing, if people read the output.
    pub fn value(self, value: &impl Serialize) -> anyhow::Result<bool> {
        match self {
            Self::Table => return Ok(false),
            Self::Json => json(value)?,
            Self::Yaml => hand_over(&mut io::stdout().lock(), &yaml_text(&serde_json::to_value(value)?))?,
        }
        Ok(true)
    }

    /// Writes objects as `--file` reads them: a list in JSON, or one document of YAML for each. `text` is for people.
    pub fn objects(self, objects: &[&Value], text: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
        match self {
            Self::Yaml => {
                let documents: String = objects.iter().copied().map(yaml_text).collect();
                hand_over(&mut io::stdout().lock(), &documents).map(|()| ExitCode::SUCCESS)
            }
            _ => self.result(&ObjectList { api_version: "v1", kind: "List", items: objects }, text),
        }
    }
}

/// Objects that `--file` reads.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectList<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[schemars(schema_with = "objects")]
    items: &'a [&'a Value],
}

/// The schema of an object of Kubernetes. The reference of its kind describes its fields.
pub fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["metadata"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
        },
    })
}

/// The schema of a list of objects of Kubernetes.
pub fn objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": object(generator)})
}

/// Writes progress to standard output.
pub fn say(text: &str) {
    accompany(&mut io::stdout().lock(), text, AutoStream::choice(&io::stdout()));
}

/// Writes a warning or an error to standard error.
pub fn warn(text: &str) {
    accompany(&mut io::stderr().lock(), text, AutoStream::choice(&io::stderr()));
}

/// Exit status of a command that has not finished. The same command continues it.
pub const PAUSED: u8 = 3;
/// Exit status of a command that ended with another result than the requested one.
pub const STOPPED: u8 = 4;

/// Writes the result of a run, and returns its exit status.
pub fn ended(exit: u8, text: &str) -> ExitCode {
    match exit {
        0 => say(text),
        PAUSED => warn(text),
        _ => warn(&format!("error: {text}")),
    }
    ExitCode::from(exit)
}

/// Writes a result to standard output.
pub fn result(text: &str) -> anyhow::Result<()> {
    hand_over(&mut io::stdout().lock(), &Text::from(text).to_string())
}

/// Writes the text of a program to standard output, with its control characters.
pub fn raw(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    unless_closed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes a result for scripts to standard output.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    hand_over(&mut io::stdout().lock(), &json_text(value)?)
}

/// JSON with the escapes of RFC 8259, section 7: two for a character beyond `\uffff`.
fn json_text(value: &impl Serialize) -> anyhow::Result<String> {
    let escape =
        |c: char| -> String { c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect() };
    Ok(escaped(&serde_json::to_string_pretty(value)?, escape))
}

/// YAML with the escapes of double-quoted texts (YAML 1.2.2, section 5.7).
fn yaml_text(value: &Value) -> String {
    escaped(&yaml(value), |c| match u32::from(c) {
        code @ ..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    })
}

/// Escapes the characters that [`Text`] replaces. In JSON and YAML, only texts in double quotes have them.
fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match is_plain(c) || c == '\n' {
            true => clean.push(c),
            false => clean += &escape(c),
        }
    }
    clean
}

/// Writes lines. Errors are ignored.
fn accompany(to: &mut impl Write, text: &str, colours: ColorChoice) {
    let text = Text::from(text.trim_end_matches('\n'));
    let _ = writeln!(to, "{}", shown(&text, colours)).and_then(|()| to.flush());
}

/// The text, with colours if the stream is a terminal that has them, and `NO_COLOR` is unset.
fn shown(text: &Text, colours: ColorChoice) -> String {
    if colours == ColorChoice::Never { text.to_string() } else { text.coloured() }
}

/// Whether a shell reads a text as one word, and not as an option or a command.
pub fn is_shell_word(text: &str) -> bool {
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || "._:/@-".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_harmless)
}

/// A text as one word of a command line, in quotes if it needs them.
pub fn shell_word(text: &str) -> String {
    if is_shell_word(text) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// A number with its noun: `1 worker`, `3 workers`.
pub fn number_of(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn hand_over(to: &mut impl Write, text: &str) -> anyhow::Result<()> {
    unless_closed(writeln!(to, "{}", text.trim_end_matches('\n')).and_then(|()| to.flush()))
}

/// A reader that has closed the pipe has what it wants: the output ends, and the command continues.
fn unless_closed(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing the result"),
    }
}

/// Writes the log records of the project's own crates to standard error.
struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The records of other crates are for their developers.
        let room = metadata.target().split("::").next().unwrap_or_default();
        ["fleet", "image", "kaas", "kaas_dev", "lab", "ova", "vsphere"].contains(&room)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            match record.level() {
                Level::Error | Level::Warn => warn(&format!("warning: {}", record.args())),
                _ => warn(&record.args().to_string()),
            }
        }
    }

    fn flush(&self) {}
}

/// Installs the logger. With `verbose`, it also shows debug records.
pub fn show_log(verbose: bool) {
    static LOGGER: Logger = Logger;
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(if verbose { LevelFilter::Debug } else { LevelFilter::Info });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn nouns_follow_their_numbers() {
        assert_eq!([0, 1, 2].map(|count| number_of(count, "node")), ["0 nodes", "1 node", "2 nodes"]);
    }

    #[test]
    fn reader_that_ends_early_is_no_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(writer.write_all(b"a").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        hand_over(&mut writer, "a result").unwrap();
    }

    #[test]
    fn unwritable_progress_is_ignored_but_a_result_fails() {
        accompany(&mut Full, "1/9 verify the OVA", ColorChoice::Never);
        assert_eq!(hand_over(&mut Full, "{}").unwrap_err().to_string(), "writing the result");
        let mut text = Vec::new();
        accompany(&mut text, "a step", ColorChoice::Never);
        hand_over(&mut text, "a plan\n").unwrap();
        assert_eq!(text, b"a step\na plan\n");
    }

    #[test]
    fn words_of_a_shell_need_no_quotes() {
        for text in ["admin", "kubernetes-admin@kubernetes", "arn:aws:eks:eu-west-1:7:cluster/a_b", "10.0.0.10:6443"] {
            assert!(is_shell_word(text), "{text}");
        }
        for text in ["", "a b", "a;b", "$(reboot)", "`reboot`", "a'b", "a\"b", "a\nb", "a|b", "a&b", "-o", "a\u{202e}b"]
        {
            assert!(!is_shell_word(text), "{text:?}");
        }
        assert_eq!(shell_word("my cluster's.toml"), r"'my cluster'\''s.toml'");
        assert_eq!(shell_word("cluster.toml"), "cluster.toml");
    }

    #[test]
    fn only_own_crates_log_records_are_shown() {
        let shown = |target| Logger.enabled(&Metadata::builder().level(Level::Warn).target(target).build());
        for own in [
            "vsphere::import::lease",
            "vsphere",
            "fleet::vcenter::power",
            "image",
            "kaas::commands",
            "kaas_dev",
            "lab",
            "ova",
        ] {
            assert!(shown(own), "{own}");
        }
        for others in ["vsphere_api", "hyper::client", "rustls", ""] {
            assert!(!shown(others), "{others}");
        }
    }

    #[test]
    fn control_characters_in_json_and_yaml_are_escaped() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}8m\u{2028}\u{e0041}\n\t\u{f6}\u{1f600}\\";
        let value = serde_json::json!({"na\u{202e}me": text, "n": [1]});
        let [json, yaml] = [json_text(&value).unwrap(), yaml_text(&value)];
        for text in [&json, &yaml] {
            assert!(text.chars().all(|c| is_plain(c) || c == '\n') && text.contains("\u{f6}\u{1f600}"), "{text}");
        }
        assert!(json.contains("\\u001b[2J\\u007f\\u009b8m\\u2028\\udb40\\udc41\\n\\t"), "{json}");
        assert!(yaml.contains("\\u001b[2J\\u007f\\u009b8m\\u2028\\U000e0041\\n\\t"), "{yaml}");
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value);
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), value);
    }

    #[test]
    fn control_characters_in_names_become_spaces() {
        let mut text = Vec::new();
        let name = "error: the VM web\u{1b}[2J\u{9b}8m\r\u{202e} is a copy\n  of two\n";
        accompany(&mut text, name, ColorChoice::Never);
        assert_eq!(String::from_utf8(text).unwrap(), "error: the VM web [2J 8m   is a copy\n  of two\n");
        let mut coloured = Vec::new();
        accompany(&mut coloured, name, ColorChoice::Always);
        let expected = "\u{1b}[31merror:\u{1b}[0m the VM web [2J 8m   is a copy\n  of two\n";
        assert_eq!(String::from_utf8(coloured).unwrap(), expected);
    }
}
