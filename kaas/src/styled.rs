//! Text for people, with styles for states: green for ready, yellow for waiting, red for failed. Characters that could move,
//! colour or hide text on a terminal become spaces, so names from other systems cannot set styles.

use std::fmt;

use anstyle::{AnsiColor, Style};
use fleet::nodes::is_plain;

pub const PLAIN: Style = Style::new();
pub const READY: Style = AnsiColor::Green.on_default();
pub const WAITING: Style = AnsiColor::Yellow.on_default();
pub const FAILED: Style = AnsiColor::Red.on_default();

/// The beginnings of lines that report a state.
const LABELS: [(&str, Style); 4] =
    [("error:", FAILED), ("warning:", WAITING), ("paused:", WAITING), ("waiting:", WAITING)];

/// Parts of a text, each with its style.
#[derive(Default)]
pub struct Text(Vec<(String, Style)>);

impl Text {
    pub fn push(&mut self, text: &str, style: Style) {
        let plain = |c| if is_plain(c) || matches!(c, '\n' | '\t') { c } else { ' ' };
        self.0.push((text.chars().map(plain).collect(), style));
    }

    pub fn append(&mut self, more: impl Into<Self>) {
        self.0.extend(more.into().0);
    }

    /// With the escape sequences of a terminal.
    pub fn coloured(&self) -> String {
        self.0.iter().map(|(text, style)| format!("{style}{text}{style:#}")).collect()
    }
}

/// Without styles.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(text, _)| f.write_str(text))
    }
}

/// A label at the beginning of a line has its style.
impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut styled = Self::default();
        for line in text.split_inclusive('\n') {
            let (indent, bare) = line.split_at(line.len() - line.trim_start().len());
            let found = LABELS.iter().find_map(|(label, style)| Some((bare.strip_prefix(*label)?, *label, *style)));
            styled.push(indent, PLAIN);
            if let Some((_, label, style)) = found {
                styled.push(label, style);
            }
            styled.push(found.map_or(bare, |(rest, ..)| rest), PLAIN);
        }
        styled
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let text = Text::from(text);
        let marks = [("\u{1b}[33m", "<y>"), ("\u{1b}[31m", "<r>"), ("\u{1b}[0m", "</>")];
        assert_eq!(marks.iter().fold(text.coloured(), |text, (code, mark)| text.replace(code, mark)), expected);
    }

    #[test]
    fn only_labels_of_lines_have_colours() {
        check("error: no route", "<r>error:</> no route");
        check("a step\n  waiting: the VM", "a step\n  <y>waiting:</> the VM");
        check("an error: text", "an error: text");
        check("shop: Ready is False (Provisioning)", "shop: Ready is False (Provisioning)");
    }

    #[test]
    fn names_set_no_styles() {
        let mut text = Text::default();
        text.push("web\u{1b}[2J", READY);
        assert_eq!((text.to_string().as_str(), text.coloured().as_str()), ("web [2J", "\u{1b}[32mweb [2J\u{1b}[0m"));
    }
}
