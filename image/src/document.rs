//! Reads a TOML document key by key and collects everything that is wrong with
//! it, each with file, line and key, instead of stopping at the first mistake.
//! Knows nothing of what the keys mean.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Range, RangeInclusive};
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

    /// Parses the document and hands its top table to `read`. When `read` returns nothing, it noted why.
    ///
    /// # Errors
    /// [`Mistakes`], sorted by line, when the text is no TOML or `read` noted some.
    pub fn read<T>(&self, read: impl FnOnce(&Table<'_, 't>) -> Option<T>) -> Result<T, Mistakes> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let at = error.span().unwrap_or(0..0);
            self.note(&at, String::new(), error.message().to_owned());
        }
        let result = Table::new(self, table.get_ref(), String::new(), table.span()).read(read);
        let mut mistakes = self.mistakes.take();
        mistakes.sort_by_key(|mistake| mistake.line);
        result.filter(|_| mistakes.is_empty()).ok_or(Mistakes(mistakes))
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

    /// Reads this table; keys that `read` did not ask for are mistakes.
    fn read<T>(&self, read: impl FnOnce(&Self) -> T) -> T {
        let result = read(self);
        let asked = self.asked.borrow();
        for (key, _) in self.table.iter().filter(|(key, _)| !asked.contains(key.get_ref().as_ref())) {
            let known = asked.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("is no key of {}: known are {known}", self.name());
            self.document.note(&key.span(), self.path_of(key.get_ref()), message);
        }
        result
    }

    fn get(&self, key: &str) -> Option<(&'d DeValue<'t>, Range<usize>)> {
        self.asked.borrow_mut().insert(key.to_owned());
        let (found, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        // The key's own place names the line better than that of a value
        // which spans several.
        Some((value.get_ref(), found.span()))
    }

    /// A value as `kind` has it; one of another type is a mistake.
    fn typed<V>(&self, key: &str, what: &str, kind: impl FnOnce(&'d DeValue<'t>) -> Option<V>) -> Option<V> {
        let (value, span) = self.get(key)?;
        let typed = kind(value);
        if typed.is_none() {
            let message = format!("expects {what}, not a value of type {}", value.type_str());
            self.document.note(&span, self.path_of(key), message);
        }
        typed
    }

    /// Whether there is more at a key than nothing, an empty string or an empty list; otherwise that is noted.
    fn has(&self, key: &str, what: &str) -> bool {
        let is_empty =
            |value: &DeValue<'_>| value.as_str() == Some("") || value.as_array().is_some_and(|array| array.is_empty());
        let has = self.get(key).is_some_and(|(value, _)| !is_empty(value));
        if !has {
            self.mistake_at(key, format!("is missing: give {what}"));
        }
        has
    }

    /// Notes a mistake at a value read before.
    pub fn mistake<T>(&self, at: &Located<T>, message: impl Into<String>) {
        self.document.note(&at.span, at.key.clone(), message.into());
    }

    /// Notes a mistake at a key of this table.
    pub fn mistake_at(&self, key: &str, message: impl Into<String>) {
        let span = self.get(key).map_or_else(|| self.span.clone(), |(_, span)| span);
        self.document.note(&span, self.path_of(key), message.into());
    }

    /// Notes a mistake of this table as a whole.
    pub fn mistake_here(&self, message: impl Into<String>) {
        self.document.note(&self.span, self.path.clone(), message.into());
    }

    /// What a rule makes of a string that may be missing.
    pub fn optional<T>(&self, key: &str, rule: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.typed(key, "a string", DeValue::as_str)?;
        rule(text).map_err(|message| self.mistake_at(key, message)).ok()
    }

    /// What a rule makes of a string that has to be there; `what` says what it is.
    pub fn required<T>(&self, key: &str, what: &str, rule: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        if self.has(key, what) { self.optional(key, rule) } else { None }
    }

    /// A whole number that has to be there, within `range`.
    pub fn number(&self, key: &str, what: &str, range: RangeInclusive<u32>) -> Option<u32> {
        if !self.has(key, what) {
            return None;
        }
        let given = self.typed(key, what, DeValue::as_integer)?;
        let number = u32::from_str_radix(given.as_str(), given.radix()).ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.mistake_at(key, format!("is {given}: give {what}, {} to {}", range.start(), range.end()));
        }
        number
    }

    /// What a rule makes of the strings of a list; an absent one is empty. Doubles are mistakes.
    pub fn texts<T>(&self, key: &str, rule: impl Fn(&str) -> Result<T, String>) -> Vec<Located<T>> {
        let Some(array) = self.typed(key, "a list of strings", DeValue::as_array) else { return Vec::new() };
        let mut seen = BTreeSet::new();
        let mut texts = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let at = Located { value: (), key: format!("{}[{index}]", self.path_of(key)), span: item.span() };
            let Some(text) = item.get_ref().as_str() else {
                self.mistake(&at, format!("expects a string, not a value of type {}", item.get_ref().type_str()));
                continue;
            };
            if !seen.insert(text) {
                self.mistake(&at, format!("`{text}` is listed twice"));
            }
            match rule(text) {
                Ok(value) => texts.push(at.with(value)),
                Err(message) => self.mistake(&at, message),
            }
        }
        texts
    }

    /// A list of strings that has to be there and not be empty.
    pub fn required_texts<T>(
        &self,
        key: &str,
        what: &str,
        rule: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<Located<T>> {
        if self.has(key, what) { self.texts(key, rule) } else { Vec::new() }
    }

    /// What `read` makes of a table that may be missing.
    pub fn optional_table<T>(&self, key: &str, read: impl FnOnce(&Table<'d, 't>) -> T) -> Option<T> {
        let table = self.typed(key, "a table", DeValue::as_table)?;
        let (_, span) = self.get(key)?;
        Some(Table::new(self.document, table, self.path_of(key), span).read(read))
    }

    /// What `read` makes of a table that has to be there.
    pub fn table<T>(&self, key: &str, read: impl FnOnce(&Table<'d, 't>) -> Option<T>) -> Option<T> {
        let what = format!("a table [{}]", self.path_of(key));
        if self.has(key, &what) { self.optional_table(key, read).flatten() } else { None }
    }

    /// What `read` makes of the tables of a list that has to be there and not be empty; `absent` is said of this table
    /// if it is.
    pub fn tables<T>(&self, key: &str, absent: &str, read: impl Fn(&Table<'d, 't>) -> Option<T>) -> Vec<T> {
        let array = self.typed(key, "a list of tables", DeValue::as_array);
        if array.is_none_or(|array| array.is_empty()) {
            self.mistake_here(absent);
        }
        let mut found = Vec::new();
        for (index, item) in array.into_iter().flat_map(|array| array.iter()).enumerate() {
            let path = format!("{}[{index}]", self.path_of(key));
            match item.get_ref().as_table() {
                Some(table) => found.extend(Table::new(self.document, table, path, item.span()).read(&read)),
                None => {
                    let message = format!("expects a table, not a value of type {}", item.get_ref().type_str());
                    self.document.note(&item.span(), path, message);
                }
            }
        }
        found
    }

    /// The keys of this table, for one whose keys are names.
    pub fn keys(&self) -> Vec<String> {
        self.table.iter().map(|(key, _)| key.get_ref().to_string()).collect()
    }

    fn name(&self) -> String {
        if self.path.is_empty() { "the document".to_owned() } else { format!("[{}]", self.path) }
    }
}

/// The rule of strings that are taken as they are.
pub fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// The values alone.
pub fn values<T>(list: Vec<Located<T>>) -> Vec<T> {
    list.into_iter().map(|item| item.value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str, read: impl FnOnce(&Table<'_, '_>)) -> Vec<String> {
        let document = Document::new(Path::new("spec.toml"), text);
        let read = |top: &Table<'_, '_>| {
            read(top);
            Some(())
        };
        match document.read(read) {
            Ok(()) => Vec::new(),
            Err(mistakes) => mistakes.0.iter().map(ToString::to_string).collect(),
        }
    }

    fn size(text: &str) -> Result<u64, String> {
        text.parse().map_err(|_| format!("`{text}` is no size"))
    }

    #[test]
    fn everything_wrong_is_said_at_once_with_its_line() {
        let text = "name = 7\n\n[disk]\ncapacity = \"16 GB\"\nspeed = 3\n";
        let found = mistakes(text, |top| {
            top.required("name", "a name", any);
            top.required("version", "a version", any);
            top.table("disk", |disk| disk.required("capacity", "a size", size));
        });
        assert_eq!(
            found,
            [
                "spec.toml:1: name: expects a string, not a value of type integer",
                "spec.toml:1: version: is missing: give a version",
                "spec.toml:4: disk.capacity: `16 GB` is no size",
                "spec.toml:5: disk.speed: is no key of [disk]: known are capacity",
            ]
        );
    }

    #[test]
    fn a_missing_table_is_said_once() {
        let found = mistakes("", |top| {
            top.table("disk", |disk| disk.required("capacity", "a size", size));
        });
        assert_eq!(found, ["spec.toml:1: disk: is missing: give a table [disk]"]);
    }

    #[test]
    fn what_is_empty_is_missing() {
        let found = mistakes("\nname = \"\"\nnames = []\n", |top| {
            top.required("name", "a name", any);
            top.required_texts("names", "names", any);
        });
        assert_eq!(found, ["spec.toml:2: name: is missing: give a name", "spec.toml:3: names: is missing: give names"]);
    }

    #[test]
    fn text_that_is_no_toml_is_a_mistake_with_a_line() {
        let found = mistakes("a = 1\nb = = 2\n", |top| {
            top.number("a", "a number", 0..=9);
            top.number("b", "a number", 0..=9);
        });
        assert!(found[0].starts_with("spec.toml:2: "), "{found:?}");
    }

    #[test]
    fn numbers_out_of_range_and_doubles_are_mistakes() {
        let found = mistakes("cpus = 900\nnames = [\n  \"a\",\n  \"a\",\n  3,\n]\n", |top| {
            top.number("cpus", "a number of CPUs", 1..=128);
            top.texts("names", any);
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
