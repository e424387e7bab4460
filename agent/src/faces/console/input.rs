//! One line of typed text. It may be a secret, so it is zeroed when dropped.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use zeroize::Zeroizing;

/// Capacity for typed text, in bytes. A string that grows would leave a copy behind.
const ROOM: usize = 4096;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Input {
    text: Zeroizing<String>,
    /// Characters before the cursor.
    cursor: usize,
}

impl Input {
    /// A line with the cursor at its end.
    pub(super) fn new(text: &str) -> Self {
        let mut room = Zeroizing::new(String::with_capacity(ROOM.max(text.len())));
        room.push_str(text);
        Self { cursor: text.chars().count(), text: room }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Inserts a pasted text without line ends and control characters.
    pub(super) fn paste(&mut self, text: &str) {
        text.trim_end_matches(['\r', '\n']).chars().filter(|c| !c.is_control()).for_each(|c| self.insert(c));
    }

    /// Handles a key. Returns whether the key has a meaning.
    pub(super) fn key(&mut self, key: &KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => *self = Self::new(""),
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.text.chars().count(),
            KeyCode::Char(character) if !control => self.insert(character),
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(self.text.chars().count()),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.chars().count(),
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                let at = self.place();
                self.text.remove(at);
            }
            KeyCode::Delete if self.cursor < self.text.chars().count() => {
                let at = self.place();
                self.text.remove(at);
            }
            _ => return false,
        }
        true
    }

    /// The part that fits into `width` columns, and the cursor's column. It is around the cursor if that is `here`. A hidden
    /// text shows that it is not empty, but not its length.
    pub(super) fn window(&self, width: usize, hidden: bool, here: bool) -> (String, usize) {
        let width = width.max(2);
        if hidden {
            let shown = if self.text.is_empty() { 0 } else { 8.min(width - 1) };
            return ("*".repeat(shown), shown);
        }
        let from = if here { (self.cursor + 1).saturating_sub(width) } else { 0 };
        (self.text.chars().skip(from).take(width).collect(), self.cursor.saturating_sub(from))
    }

    fn insert(&mut self, character: char) {
        if self.text.len() + character.len_utf8() > ROOM {
            return;
        }
        let at = self.place();
        self.text.insert(at, character);
        self.cursor += 1;
    }

    /// The cursor's position in bytes.
    fn place(&self) -> usize {
        self.text.char_indices().nth(self.cursor).map_or(self.text.len(), |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(input: &mut Input, codes: &[KeyCode]) {
        for code in codes {
            input.key(&KeyEvent::new(*code, KeyModifiers::NONE));
        }
    }

    #[test]
    fn a_line_is_edited_in_its_middle() {
        let mut input = Input::new("aüc");
        press(&mut input, &[KeyCode::Left, KeyCode::Backspace, KeyCode::Char('b'), KeyCode::End, KeyCode::Char('d')]);
        assert_eq!(input.text(), "abcd");
        press(&mut input, &[KeyCode::Home, KeyCode::Delete, KeyCode::Backspace]);
        assert_eq!(input.text(), "bcd");
        input.key(&KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        assert_eq!(input.text(), "");
        input.paste("one\x1b[A line\n");
        assert_eq!(input.text(), "one[A line");
    }

    #[test]
    fn a_window_follows_the_cursor_and_hides_secrets() {
        let input = Input::new("0123456789");
        assert_eq!(input.window(20, false, true), ("0123456789".into(), 10));
        assert_eq!(input.window(5, false, true), ("6789".into(), 4));
        assert_eq!(input.window(5, false, false).0, "01234");
        assert_eq!(input.window(20, true, true), ("********".into(), 8));
        assert_eq!(Input::new("").window(20, true, true), (String::new(), 0));
    }
}
