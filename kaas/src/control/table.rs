//! Tables of objects. Knows no kind.

use std::array;
use std::iter::once;

use anstyle::Style;
use serde_json::Value;

use super::object::status;
use crate::styled::{PLAIN, READY, Text, WAITING};

/// A cell of a table.
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub fn styled(text: &str, style: Style) -> Self {
        Self { text: text.to_owned(), style }
    }

    /// The text. `-` if it is empty.
    pub fn text(text: &str) -> Self {
        Self::from(if text.is_empty() { "-" } else { text })
    }

    /// The number. `-` if there is no number.
    pub fn number(value: &Value) -> Self {
        Self::from(number(value).as_str())
    }

    /// The status of a condition. `-` if the object does not have the condition.
    pub fn status(object: &Value, about: &str) -> Self {
        let status = status(object, about);
        Self::styled(status, status_style(status))
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::styled(text, PLAIN)
    }
}

/// A number as text. `-` if there is no number.
pub fn number(value: &Value) -> String {
    value.as_i64().map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// The style of a condition's status.
pub fn status_style(status: &str) -> Style {
    match status {
        "True" => READY,
        "False" | "Unknown" => WAITING,
        _ => PLAIN,
    }
}

/// Columns under their heads, the widest cell of each with two spaces behind it.
pub fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [Cell; N]>) -> Text {
    let rows: Vec<[Cell; N]> = once(head.map(Cell::from)).chain(rows).collect();
    let width = |cell: &Cell| cell.text.chars().count();
    let widths: [usize; N] =
        array::from_fn(|column| rows.iter().map(|row| width(&row[column])).max().unwrap_or_default());
    let mut text = Text::default();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            text.push("\n", PLAIN);
        }
        let count = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
        for (column, cell) in row.iter().enumerate().take(count) {
            text.push(&cell.text, cell.style);
            if column + 1 < count {
                text.push(&" ".repeat(widths[column] - width(cell) + 2), PLAIN);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_fit_their_widest_cell_without_trailing_spaces() {
        let rows = [["sh\u{f6}p-two", "2m"], ["a", ""]].map(|row| row.map(Cell::from));
        assert_eq!(table(["NAME", "AGE"], rows).to_string(), "NAME      AGE\nsh\u{f6}p-two  2m\na");
    }

    #[test]
    fn only_cells_of_a_status_have_its_colour() {
        let object = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let row = |object: &Value| [Cell::text("True"), Cell::status(object, "Ready")];
        let text = table(["NAME", "READY"], [row(&object("True")), row(&object("False")), row(&json!({}))]);
        let expected = "NAME  READY\nTrue  \u{1b}[32mTrue\u{1b}[0m\nTrue  \u{1b}[33mFalse\u{1b}[0m\nTrue  -";
        assert_eq!(text.coloured(), expected);
    }

    #[test]
    fn missing_values_are_dashes() {
        let cells = [Cell::text(""), Cell::number(&Value::Null), Cell::number(&json!(7)), Cell::from("")];
        assert_eq!(cells.map(|cell| cell.text), ["-", "-", "7", ""]);
    }
}
