//! Colours for states in text for people: green for ready, yellow for waiting, red for failed. It works on text without control
//! characters, so names from other systems cannot set colours.

use anstyle::{AnsiColor, Style};

const READY: Style = AnsiColor::Green.on_default();
const WAITING: Style = AnsiColor::Yellow.on_default();
const FAILED: Style = AnsiColor::Red.on_default();

/// The beginnings of lines that report a state.
const LABELS: [(&str, Style); 4] =
    [("error:", FAILED), ("warning:", WAITING), ("paused:", WAITING), ("waiting:", WAITING)];

/// Adds the escape sequences of a terminal.
pub fn highlight(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

fn line(line: &str) -> String {
    let bare = line.trim_start();
    for (label, style) in LABELS {
        if let Some(rest) = bare.strip_prefix(label) {
            return format!("{}{}{rest}", &line[..line.len() - bare.len()], painted(label, style));
        }
    }
    // The line of a node, as `kaas control status` shows it.
    if let Some(node) = line.strip_suffix(", Ready") {
        return format!("{node}, {}", painted("Ready", READY));
    }
    let has_failed = words(line).any(|(at, word)| word == "Error" && is_state(line, at, word));
    let is_activity = words(line).any(|(_, word)| word.ends_with("Progressing"));
    let (mut shown, mut done) = (String::new(), 0);
    for (at, word) in words(line).filter(|(at, word)| is_state(line, *at, word)) {
        let style = match word {
            "Error" => FAILED,
            "Info" | "Warning" => WAITING,
            // True means here that work goes on.
            "True" | "False" | "Unknown" if is_activity => continue,
            "True" => READY,
            "False" | "Unknown" if has_failed => FAILED,
            "False" | "Unknown" => WAITING,
            _ => continue,
        };
        shown += &line[done..at];
        shown += &painted(word, style);
        done = at + word.len();
    }
    shown + &line[done..]
}

fn painted(word: &str, style: Style) -> String {
    format!("{style}{word}{style:#}")
}

/// The words of a line, each with its place in bytes.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let places = line.split(' ').scan(0, |next, word| {
        let at = *next;
        *next += word.len() + 1;
        Some((at, word))
    });
    places.filter(|(_, word)| !word.is_empty())
}

/// Whether a word is a cell of a table, or the status in a sentence such as `Ready is False (Provisioning)`.
fn is_state(line: &str, at: usize, word: &str) -> bool {
    let (before, after) = (&line[..at], &line[at + word.len()..]);
    let is_cell = (before.is_empty() || before.ends_with("  ")) && (after.is_empty() || after.starts_with("  "));
    is_cell || before.ends_with(" is ") && after.starts_with(" (")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let shown = highlight(text);
        let marks = [("\u{1b}[32m", "<g>"), ("\u{1b}[33m", "<y>"), ("\u{1b}[31m", "<r>"), ("\u{1b}[0m", "</>")];
        assert_eq!(marks.iter().fold(shown, |shown, (code, mark)| shown.replace(code, mark)), expected);
    }

    #[test]
    fn cells_with_a_status_have_its_colour() {
        check("team  shop  True   1.36.3", "team  shop  <g>True</>   1.36.3");
        check("NAME  READY\nbank  False", "NAME  READY\nbank  <y>False</>");
        check("NodePool/a  False  Error  JoinFailed", "NodePool/a  <r>False</>  <r>Error</>  JoinFailed");
        check("└─Progressing  True  -", "└─Progressing  True  -");
        check("True  a True story", "<g>True</>  a True story");
    }

    #[test]
    fn labels_and_sentences_have_colours() {
        check("error: no route", "<r>error:</> no route");
        check("  waiting: the VM", "  <y>waiting:</> the VM");
        check("shop: Ready is False (Provisioning)", "shop: Ready is <y>False</> (Provisioning)");
        check("  cp1 at 10.0.0.1: VM cp1 is on, Ready", "  cp1 at 10.0.0.1: VM cp1 is on, <g>Ready</>");
        check("an error: text", "an error: text");
    }
}
