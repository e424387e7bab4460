//! Reads a TOML document key by key and collects everything that is wrong with
//! it, each with file, line and key, instead of stopping at the first mistake.
//! Knows nothing of what the keys mean.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// One mistake in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The document.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// The dotted key; empty for a mistake of the document as a whole.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// All mistakes found, in the order of the lines. An error as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "{count} mistake{} in the description of the image", if count == 1 { "" } else { "s" })?;
        for mistake in &self.0 {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// A document being read: its name, its text and the mistakes so far.
pub struct Document<'t> {
    file: &'t Path,
    text: &'t str,
    mistakes: RefCell<Vec<Mistake>>,
}

impl<'t> Document<'t> {
    /// A document of this name and text.
    pub fn new(file: &'t Path, text: &'t str) -> Self {
        Self { file, text, mistakes: RefCell::default() }
    }

    /// Parses the document and hands its top table to `read`.
    ///
    /// # Errors
    /// [`Mistakes`], sorted by line, when the text is no TOML or `read` noted some.
    pub fn read<T>(&self, read: impl FnOnce(&Table<'_, 't>) -> T) -> Result<T, Mistakes> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let at = error.span().unwrap_or(0..0);
            self.note(&at, String::new(), error.message().to_owned());
        }
        let span = table.span();
        let result = {
            let top = Table::new(self, table.get_ref(), String::new(), span);
            let result = read(&top);
            top.finish();
            result
        };
        let mut mistakes = self.mistakes.take();
        mistakes.sort_by_key(|mistake| mistake.line);
        if mistakes.is_empty() { Ok(result) } else { Err(Mistakes(mistakes)) }
    }

    fn note(&self, at: &Range<usize>, key: String, message: String) {
        let upto = &self.text.as_bytes()[..at.start.min(self.text.len())];
        let line = 1 + upto.iter().filter(|&&byte| byte == b'\n').count();
        self.mistakes.borrow_mut().push(Mistake { file: self.file.to_owned(), line, key, message });
    }
}

/// A value with its place.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    key: String,
    span: Range<usize>,
}

impl<T> Located<T> {
    /// Another value at the same place.
    pub fn with<U>(&self, value: U) -> Located<U> {
        Located { value, key: self.key.clone(), span: self.span.clone() }
    }
}

/// A table of the document. Keys that nothing asked for are mistakes.
pub struct Table<'d, 't> {
    document: &'d Document<'t>,
    table: &'d DeTable<'t>,
    path: String,
    span: Range<usize>,
    asked: RefCell<BTreeSet<String>>,
}

impl<'d, 't> Table<'d, 't> {
    fn new(document: &'d Document<'t>, table: &'d DeTable<'t>, path: String, span: Range<usize>) -> Self {
        Self { document, table, path, span, asked: RefCell::default() }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn get(&self, key: &str) -> Option<(&'d DeValue<'t>, Range<usize>)> {
        self.asked.borrow_mut().insert(key.to_owned());
        let (found, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        // The key's own place names the line better than that of a value
        // which spans several.
        Some((value.get_ref(), found.span()))
    }

    fn missing(&self, key: &str, what: &str) {
        let message = format!("is missing: give {what}");
        self.document.note(&self.span, self.path_of(key), message);
    }

    fn mistyped(&self, key: &str, span: &Range<usize>, value: &DeValue<'_>, what: &str) {
        let message = format!("expects {what}, not a value of type {}", value.type_str());
        self.document.note(span, self.path_of(key), message);
    }

    /// Notes a mistake at a value read before.
    pub fn mistake<T>(&self, at: &Located<T>, message: impl Into<String>) {
        self.document.note(&at.span, at.key.clone(), message.into());
    }

    /// Notes a mistake of this table as a whole.
    pub fn mistake_here(&self, message: impl Into<String>) {
        self.document.note(&self.span, self.path.clone(), message.into());
    }

    /// An optional string.
    pub fn text(&self, key: &str) -> Option<Located<String>> {
        let (value, span) = self.get(key)?;
        let Some(text) = value.as_str() else {
            self.mistyped(key, &span, value, "a string");
            return None;
        };
        Some(Located { value: text.to_owned(), key: self.path_of(key), span })
    }

    /// A string that has to be there; `what` says what it is.
    pub fn required_text(&self, key: &str, what: &str) -> Located<String> {
        let there = self.table.iter().any(|(name, _)| name.get_ref() == key);
        let found = self.text(key);
        if found.is_none() && !there {
            self.missing(key, what);
        }
        found.unwrap_or_else(|| Located { value: String::new(), key: self.path_of(key), span: self.span.clone() })
    }

    /// A whole number that has to be there, within `range`.
    pub fn required_number(&self, key: &str, what: &str, range: std::ops::RangeInclusive<u64>) -> Located<u64> {
        let fallback = |span: Range<usize>| Located { value: *range.start(), key: self.path_of(key), span };
        let Some((value, span)) = self.get(key) else {
            self.missing(key, what);
            return fallback(self.span.clone());
        };
        let number = value.as_integer().and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        match number {
            Some(value) if range.contains(&value) => Located { value, key: self.path_of(key), span },
            Some(value) => {
                let message = format!("is {value}: give {what}, {} to {}", range.start(), range.end());
                self.document.note(&span, self.path_of(key), message);
                fallback(span)
            }
            None => {
                self.mistyped(key, &span, value, what);
                fallback(span)
            }
        }
    }

    /// A size in bytes that has to be there, such as `"16G"`.
    pub fn required_size(&self, key: &str, what: &str) -> Located<u64> {
        let text = self.required_text(key, what);
        let value = if text.value.is_empty() { None } else { parse_size(&text.value) };
        if value.is_none() && !text.value.is_empty() {
            self.mistake(&text, format!("`{}` is no size: write a whole number and M or G, such as 16G", text.value));
        }
        Located { value: value.unwrap_or(0), key: text.key, span: text.span }
    }

    /// A list of strings; an absent one is empty. Doubles are mistakes.
    pub fn texts(&self, key: &str) -> Vec<Located<String>> {
        let Some((value, span)) = self.get(key) else { return Vec::new() };
        let Some(array) = value.as_array() else {
            self.mistyped(key, &span, value, "a list of strings");
            return Vec::new();
        };
        let mut seen = BTreeSet::new();
        let mut texts = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let key = format!("{}[{index}]", self.path_of(key));
            let Some(text) = item.get_ref().as_str() else {
                let message = format!("expects a string, not a value of type {}", item.get_ref().type_str());
                self.document.note(&item.span(), key, message);
                continue;
            };
            let text = Located { value: text.to_owned(), key, span: item.span() };
            if !seen.insert(text.value.clone()) {
                self.mistake(&text, format!("`{}` is listed twice", text.value));
            }
            texts.push(text);
        }
        texts
    }

    /// A list of strings that has to be there and not be empty.
    pub fn required_texts(&self, key: &str, what: &str) -> Vec<Located<String>> {
        let there = self.table.iter().any(|(name, _)| name.get_ref() == key);
        let texts = self.texts(key);
        if texts.is_empty() && (!there || self.get(key).is_some_and(|(value, _)| value.is_array())) {
            self.missing(key, what);
        }
        texts
    }

    /// An optional table.
    pub fn table(&self, key: &str) -> Option<Table<'d, 't>> {
        let (value, span) = self.get(key)?;
        let Some(table) = value.as_table() else {
            self.mistyped(key, &span, value, "a table");
            return None;
        };
        Some(Table::new(self.document, table, self.path_of(key), span))
    }

    /// Reads a table that has to be there; `read` sees an empty one if it is not.
    pub fn required_table<T>(&self, key: &str, read: impl FnOnce(&Table<'_, 't>) -> T) -> T {
        if let Some(table) = self.table(key) {
            let result = read(&table);
            table.finish();
            return result;
        }
        self.missing(key, &format!("a table [{}]", self.path_of(key)));
        // What an absent table lacks is said once, not key by key.
        let noted = self.document.mistakes.borrow().len();
        let empty = DeTable::new();
        let result = read(&Table::new(self.document, &empty, self.path_of(key), self.span.clone()));
        self.document.mistakes.borrow_mut().truncate(noted);
        result
    }

    /// Every entry of this table as a table, with its key.
    pub fn tables(&self) -> Vec<(String, Table<'d, 't>)> {
        let keys: Vec<String> = self.table.iter().map(|(key, _)| key.get_ref().to_string()).collect();
        keys.into_iter().filter_map(|key| self.table(&key).map(|table| (key, table))).collect()
    }

    /// Every entry of this table as a list of strings, with its key.
    pub fn lists(&self) -> Vec<(String, Vec<Located<String>>)> {
        let keys: Vec<String> = self.table.iter().map(|(key, _)| key.get_ref().to_string()).collect();
        keys.into_iter().map(|key| (key.clone(), self.texts(&key))).collect()
    }

    /// Every entry of this table as a string, with its key.
    pub fn texts_by_key(&self) -> Vec<(Located<String>, Located<String>)> {
        let keys: Vec<_> = self.table.iter().map(|(key, _)| (key.get_ref().to_string(), key.span())).collect();
        let pair = |(key, span): (String, Range<usize>)| {
            let value = self.text(&key)?;
            Some((Located { key: self.path_of(&key), value: key, span }, value))
        };
        keys.into_iter().filter_map(pair).collect()
    }

    /// A list of tables; an absent one is empty.
    pub fn table_list(&self, key: &str) -> Vec<Table<'d, 't>> {
        let Some((value, span)) = self.get(key) else { return Vec::new() };
        let Some(array) = value.as_array() else {
            self.mistyped(key, &span, value, "a list of tables");
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (index, item) in array.iter().enumerate() {
            match item.get_ref().as_table() {
                Some(table) => {
                    let path = format!("{}[{index}]", self.path_of(key));
                    tables.push(Table::new(self.document, table, path, item.span()));
                }
                None => self.mistyped(key, &item.span(), item.get_ref(), "a table"),
            }
        }
        tables
    }

    /// Notes every key that nothing asked for.
    pub fn finish(&self) {
        let asked = self.asked.borrow();
        for (key, _) in self.table.iter().filter(|(key, _)| !asked.contains(key.get_ref().as_ref())) {
            let known = asked.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("is no key of {}: known are {known}", self.name());
            self.document.note(&key.span(), self.path_of(key.get_ref()), message);
        }
    }

    fn name(&self) -> String {
        if self.path.is_empty() { "the document".to_owned() } else { format!("[{}]", self.path) }
    }
}

/// A whole number of mebibytes or gibibytes, as `512M` or `16G`, in bytes.
fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix('G') {
        Some(number) => (number, 1 << 30),
        None => (text.strip_suffix('M')?, 1 << 20),
    };
    number.parse::<u64>().ok().filter(|&number| number > 0)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str, read: impl FnOnce(&Table<'_, '_>)) -> Vec<String> {
        let document = Document::new(Path::new("spec.toml"), text);
        match document.read(read) {
            Ok(()) => Vec::new(),
            Err(mistakes) => mistakes.0.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn everything_wrong_is_said_at_once_with_its_line() {
        let text = "name = 7\n\n[disk]\ncapacity = \"16 GB\"\nspeed = 3\n";
        let found = mistakes(text, |top| {
            top.required_text("name", "a name");
            top.required_text("version", "a version");
            top.required_table("disk", |disk| {
                disk.required_size("capacity", "a size");
            });
        });
        assert_eq!(
            found,
            [
                "spec.toml:1: name: expects a string, not a value of type integer",
                "spec.toml:1: version: is missing: give a version",
                "spec.toml:4: disk.capacity: `16 GB` is no size: write a whole number and M or G, such as 16G",
                "spec.toml:5: disk.speed: is no key of [disk]: known are capacity",
            ]
        );
    }

    #[test]
    fn a_missing_table_is_said_once() {
        let found = mistakes("", |top| {
            top.required_table("disk", |disk| {
                disk.required_size("capacity", "a size");
                disk.required_text("label", "a label");
            });
        });
        assert_eq!(found, ["spec.toml:1: disk: is missing: give a table [disk]"]);
    }

    #[test]
    fn text_that_is_no_toml_is_a_mistake_with_a_line() {
        let found = mistakes("a = 1\nb = = 2\n", |top| {
            top.required_number("a", "a number", 0..=9);
            top.required_number("b", "a number", 0..=9);
        });
        assert!(found[0].starts_with("spec.toml:2: "), "{found:?}");
    }

    #[test]
    fn sizes_are_whole_mebibytes_or_gibibytes() {
        assert_eq!(parse_size("16G"), Some(16 << 30));
        assert_eq!(parse_size("96M"), Some(96 << 20));
        for bad in ["", "G", "0G", "-1G", "16", "16GB", "1.5G", "99999999999999G"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_out_of_range_and_doubles_are_mistakes() {
        let found = mistakes("cpus = 900\nnames = [\n  \"a\",\n  \"a\",\n  3,\n]\n", |top| {
            top.required_number("cpus", "a number of CPUs", 1..=128);
            top.texts("names");
        });
        assert_eq!(
            found,
            [
                "spec.toml:1: cpus: is 900: give a number of CPUs, 1 to 128",
                "spec.toml:4: names[1]: `a` is listed twice",
                "spec.toml:5: names[2]: expects a string, not a value of type integer",
            ]
        );
    }
}
