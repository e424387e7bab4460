//! Reads a TOML document key by key and collects all mistakes, each with file, line and key, instead of stopping at
//! the first. Independent of the meaning of the keys.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// The dotted key. Empty for a mistake of the whole document.
    pub key: String,
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

/// All mistakes, sorted by line. Used as one error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "{count} mistake{}", if count == 1 { "" } else { "s" })?;
        for mistake in &self.0 {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// A document with its files and mistakes. Several files are read as one: their tables are joined, and their lists
/// are appended. Any other key must be in one file only.
pub struct Document<'t> {
    files: Vec<(&'t Path, &'t str)>,
    mistakes: RefCell<Vec<(Place, Mistake)>>,
}

/// A place in one of a document's files.
#[derive(Clone, Debug)]
struct Place {
    file: usize,
    span: Range<usize>,
}

impl<'t> Document<'t> {
    pub fn new(file: &'t Path, text: &'t str) -> Self {
        Self::joined(vec![(file, text)])
    }

    /// A document of several files, in the order of their lists. Missing keys are reported in the last file.
    pub fn joined(files: Vec<(&'t Path, &'t str)>) -> Self {
        Self { files, mistakes: RefCell::default() }
    }

    /// Parses the document and calls `read` with its top table. If `read` returns `None`, it has added a mistake.
    pub fn read<T>(&self, read: impl FnOnce(&Table<'_, 't>) -> Option<T>) -> Result<T, Mistakes> {
        let mut parsed = Vec::new();
        for (file, (_, text)) in self.files.iter().enumerate() {
            let (table, errors) = DeTable::parse_recoverable(text);
            for error in errors {
                let span = error.span().unwrap_or(0..0);
                self.note(&Place { file, span }, String::new(), error.message().to_owned());
            }
            parsed.push(table);
        }
        let parts =
            parsed.iter().enumerate().map(|(file, table)| (table.get_ref(), Place { file, span: table.span() }));
        let result = Table::new(self, parts.collect(), String::new()).read(read);
        let mut mistakes = self.mistakes.take();
        mistakes.sort_by_key(|(place, mistake)| (place.file, mistake.line));
        let mistakes: Vec<_> = mistakes.into_iter().map(|(_, mistake)| mistake).collect();
        result.filter(|_| mistakes.is_empty()).ok_or(Mistakes(mistakes))
    }

    fn line(&self, at: &Place) -> (PathBuf, usize) {
        let (file, text) = self.files[at.file];
        let upto = &text.as_bytes()[..at.span.start.min(text.len())];
        (file.to_owned(), 1 + upto.iter().filter(|&&byte| byte == b'\n').count())
    }

    fn note(&self, at: &Place, key: String, message: String) {
        let mistake = self.mistake(&Located { value: (), key, place: at.clone() }, message);
        self.mistakes.borrow_mut().push((at.clone(), mistake));
    }

    pub fn mistake<T>(&self, at: &Located<T>, message: impl Into<String>) -> Mistake {
        let (file, line) = self.line(&at.place);
        Mistake { file, line, key: at.key.clone(), message: message.into() }
    }
}

#[derive(Clone, Debug)]
pub struct Located<T> {
    pub value: T,
    key: String,
    place: Place,
}

impl<T> Located<T> {
    /// Another value with the same place.
    pub fn with<U>(&self, value: U) -> Located<U> {
        Located { value, key: self.key.clone(), place: self.place.clone() }
    }

    /// Index of its file in the document, from 0.
    pub fn file(&self) -> usize {
        self.place.file
    }
}

/// A table of the document. Keys that `read` does not ask for are mistakes.
pub struct Table<'d, 't> {
    document: &'d Document<'t>,
    parts: Vec<(&'d DeTable<'t>, Place)>,
    path: String,
    asked: RefCell<BTreeSet<String>>,
}

impl<'d, 't> Table<'d, 't> {
    fn new(document: &'d Document<'t>, parts: Vec<(&'d DeTable<'t>, Place)>, path: String) -> Self {
        Self { document, parts, path, asked: RefCell::default() }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Reads this table. Adds mistakes for keys that `read` did not ask for.
    fn read<T>(&self, read: impl FnOnce(&Self) -> T) -> T {
        let result = read(self);
        let asked = self.asked.borrow();
        for (table, place) in &self.parts {
            for (key, _) in table.iter().filter(|(key, _)| !asked.contains(key.get_ref().as_ref())) {
                let known = asked.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let message = format!("is no key of {}: known are {known}", self.name());
                let at = Place { span: key.span(), ..place.clone() };
                self.document.note(&at, self.path_of(key.get_ref()), message);
            }
        }
        result
    }

    /// The values of a key, one for each file that has it.
    fn get(&self, key: &str) -> Vec<(&'d DeValue<'t>, Place)> {
        self.asked.borrow_mut().insert(key.to_owned());
        let find = |(table, place): &(&'d DeTable<'t>, Place)| {
            let (found, value) = table.iter().find(|(name, _)| name.get_ref() == key)?;
            // The place of the key is more exact than that of a value with several lines.
            Some((value.get_ref(), Place { span: found.span(), ..place.clone() }))
        };
        self.parts.iter().filter_map(find).collect()
    }

    /// The values of a key, converted by `kind`. A value of another type is a mistake.
    fn typed<V>(&self, key: &str, what: &str, kind: impl Fn(&'d DeValue<'t>) -> Option<V>) -> Vec<(V, Place)> {
        let typed = |(value, place): (&'d DeValue<'t>, Place)| {
            let typed = kind(value);
            if typed.is_none() {
                let message = format!("expects {what}, not a value of type {}", value.type_str());
                self.document.note(&place, self.path_of(key), message);
            }
            Some((typed?, place))
        };
        self.get(key).into_iter().filter_map(typed).collect()
    }

    /// As [`Table::typed`], for a key that only one file may have.
    fn single<V>(&self, key: &str, what: &str, kind: impl Fn(&'d DeValue<'t>) -> Option<V>) -> Option<(V, Place)> {
        let mut found = self.typed(key, what, kind).into_iter();
        let first = found.next()?;
        for (_, place) in found {
            let (file, line) = self.document.line(&first.1);
            let message =
                format!("is given in {}:{line} already: files that belong together do not differ", file.display());
            self.document.note(&place, self.path_of(key), message);
        }
        Some(first)
    }

    /// Whether a key has a value that is not empty. Otherwise adds a mistake.
    fn has(&self, key: &str, what: &str) -> bool {
        let is_empty =
            |value: &DeValue<'_>| value.as_str() == Some("") || value.as_array().is_some_and(|array| array.is_empty());
        let has = self.get(key).iter().any(|(value, _)| !is_empty(value));
        if !has {
            self.mistake_at(key, format!("is missing: give {what}"));
        }
        has
    }

    /// Reads a required key with `read`. Without a value, adds a mistake.
    fn given<R: Default>(&self, key: &str, what: &str, read: impl FnOnce() -> R) -> R {
        if self.has(key, what) { read() } else { R::default() }
    }

    /// The items of all lists of a key, each with its place.
    fn items(&self, key: &str, what: &str) -> Vec<(&'d DeValue<'t>, Located<()>)> {
        let path = self.path_of(key);
        let mut items = Vec::new();
        for (array, Place { file, .. }) in self.typed(key, what, DeValue::as_array) {
            for (index, item) in array.iter().enumerate() {
                let place = Place { file, span: item.span() };
                items.push((item.get_ref(), Located { value: (), key: format!("{path}[{index}]"), place }));
            }
        }
        items
    }

    pub fn mistake<T>(&self, at: &Located<T>, message: impl Into<String>) {
        self.document.note(&at.place, at.key.clone(), message.into());
    }

    pub fn mistake_at(&self, key: &str, message: impl Into<String>) {
        let place = self.get(key).pop().map(|(_, place)| place).or_else(|| self.place());
        if let Some(place) = place {
            self.document.note(&place, self.path_of(key), message.into());
        }
    }

    /// Adds a mistake of the whole table.
    pub fn mistake_here(&self, message: impl Into<String>) {
        if let Some(place) = self.place() {
            self.document.note(&place, self.path.clone(), message.into());
        }
    }

    /// The place of the table in the last file that has it.
    fn place(&self) -> Option<Place> {
        self.parts.last().map(|(_, place)| place.clone())
    }

    pub fn optional<T>(&self, key: &str, rule: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let (text, _) = self.single(key, "a string", DeValue::as_str)?;
        rule(text).map_err(|message| self.mistake_at(key, message)).ok()
    }

    /// A required string, converted by `rule`. `what` describes it in the mistake.
    pub fn required<T>(&self, key: &str, what: &str, rule: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.given(key, what, || self.optional(key, rule))
    }

    /// As [`Table::required`], with its place.
    pub fn located<T>(
        &self,
        key: &str,
        what: &str,
        rule: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Located<T>> {
        let value = self.required(key, what, rule)?;
        let (_, place) = self.get(key).into_iter().next()?;
        Some(Located { value, key: self.path_of(key), place })
    }

    /// A required path, relative to its file, converted by `rule`.
    pub fn path<T>(&self, key: &str, what: &str, rule: impl FnOnce(PathBuf) -> Result<T, String>) -> Option<T> {
        let named = self.located(key, what, any)?;
        rule(self.beside(&named)).map_err(|message| self.mistake(&named, message)).ok()
    }

    /// An optional list of paths, each relative to its file, converted by `rule`.
    pub fn paths<T>(&self, key: &str, rule: impl Fn(PathBuf) -> Result<T, String>) -> Vec<Located<T>> {
        self.list(key, |text, file| beside(self.document.files[file].0, text), rule)
    }

    fn beside(&self, named: &Located<String>) -> PathBuf {
        beside(self.document.files[named.place.file].0, &named.value)
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.single(key, "true or false", DeValue::as_bool).map(|(flag, _)| flag)
    }

    /// A required whole number within `range`.
    pub fn number(&self, key: &str, what: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let (given, _) = self.given(key, what, || self.single(key, what, DeValue::as_integer))?;
        let number = u32::from_str_radix(given.as_str(), given.radix()).ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.mistake_at(key, format!("is {given}: give {what}, {} to {}", range.start(), range.end()));
        }
        number
    }

    /// An optional list of strings, converted by `rule`. Duplicates are mistakes.
    pub fn texts<T>(&self, key: &str, rule: impl Fn(&str) -> Result<T, String>) -> Vec<Located<T>> {
        self.list(key, |text, _| text.to_owned(), |text| rule(&text))
    }

    /// An optional list of strings. `means` converts each with the index of its file, then `rule`. Two strings with
    /// the same meaning are a mistake.
    fn list<M: Ord + Clone, T>(
        &self,
        key: &str,
        means: impl Fn(&str, usize) -> M,
        rule: impl Fn(M) -> Result<T, String>,
    ) -> Vec<Located<T>> {
        let mut seen = BTreeSet::new();
        let mut texts = Vec::new();
        for (item, at) in self.items(key, "a list of strings") {
            let Some(text) = item.as_str() else {
                self.mistake(&at, format!("expects a string, not a value of type {}", item.type_str()));
                continue;
            };
            let meant = means(text, at.file());
            if !seen.insert(meant.clone()) {
                self.mistake(&at, format!("`{text}` is listed twice"));
            }
            match rule(meant) {
                Ok(value) => texts.push(at.with(value)),
                Err(message) => self.mistake(&at, message),
            }
        }
        texts
    }

    /// A required list of strings that is not empty.
    pub fn required_texts<T>(
        &self,
        key: &str,
        what: &str,
        rule: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<Located<T>> {
        self.given(key, what, || self.texts(key, rule))
    }

    pub fn optional_table<T>(&self, key: &str, read: impl FnOnce(&Table<'d, 't>) -> T) -> Option<T> {
        let parts = self.typed(key, "a table", DeValue::as_table);
        let is_there = !parts.is_empty();
        is_there.then(|| Table::new(self.document, parts, self.path_of(key)).read(read))
    }

    /// A required table, read by `read`.
    pub fn table<T>(&self, key: &str, read: impl FnOnce(&Table<'d, 't>) -> Option<T>) -> Option<T> {
        let what = format!("a table [{}]", self.path_of(key));
        self.given(key, &what, || self.optional_table(key, read).flatten())
    }

    /// A required list of tables that is not empty, each read by `read`. `absent` is the mistake of this table if it
    /// is empty.
    pub fn tables<T>(&self, key: &str, absent: &str, read: impl Fn(&Table<'d, 't>) -> Option<T>) -> Vec<T> {
        let items = self.items(key, "a list of tables");
        if items.is_empty() {
            self.mistake_here(absent);
        }
        let mut found = Vec::new();
        for (item, at) in items {
            match item.as_table() {
                Some(table) => found.extend(Table::new(self.document, vec![(table, at.place)], at.key).read(&read)),
                None => self.mistake(&at, format!("expects a table, not a value of type {}", item.type_str())),
            }
        }
        found
    }

    /// Accepts all other keys of this table.
    pub fn pass_over_others(&self) {
        self.asked.borrow_mut().extend(self.keys());
    }

    /// The place of a key of this table, if it exists.
    pub fn at(&self, key: &str) -> Option<Located<()>> {
        let (_, place) = self.get(key).into_iter().next()?;
        Some(Located { value: (), key: self.path_of(key), place })
    }

    /// Whether a key has a table, for one that may have another type.
    pub fn is_table(&self, key: &str) -> bool {
        self.get(key).iter().any(|(value, _)| value.as_table().is_some())
    }

    /// The keys of this table, for one whose keys are names.
    pub fn keys(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let keys = self.parts.iter().flat_map(|(table, _)| table.iter().map(|(key, _)| key.get_ref().to_string()));
        keys.filter(|key| seen.insert(key.clone())).collect()
    }

    fn name(&self) -> String {
        if self.path.is_empty() { "the document".to_owned() } else { format!("[{}]", self.path) }
    }
}

/// The path of `name`, relative to the directory of `file`.
pub fn beside(file: &Path, name: &str) -> PathBuf {
    let directory = file.parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in directory.join(name).components() {
        // `a/../b` becomes `b`, for readable errors.
        let up = part.as_os_str() == "..";
        if !(up && path.file_name().is_some() && path.pop()) {
            path.push(part);
        }
    }
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path }
}

/// A rule that accepts any string.
pub fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

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
    fn all_mistakes_are_reported_with_their_lines() {
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
    fn a_flag_is_true_false_or_missing() {
        let found = mistakes("a = true\nb = \"yes\"\n", |top| {
            assert_eq!((top.flag("a"), top.flag("b"), top.flag("c")), (Some(true), None, None));
        });
        assert_eq!(found, ["spec.toml:2: b: expects true or false, not a value of type string"]);
    }

    #[test]
    fn a_missing_table_is_reported_once() {
        let found = mistakes("", |top| {
            top.table("disk", |disk| disk.required("capacity", "a size", size));
        });
        assert_eq!(found, ["spec.toml:1: disk: is missing: give a table [disk]"]);
    }

    #[test]
    fn empty_values_are_missing() {
        let found = mistakes("\nname = \"\"\nnames = []\n", |top| {
            top.required("name", "a name", any);
            top.required_texts("names", "names", any);
        });
        assert_eq!(found, ["spec.toml:2: name: is missing: give a name", "spec.toml:3: names: is missing: give names"]);
    }

    #[test]
    fn invalid_toml_is_a_mistake_with_a_line() {
        let found = mistakes("a = 1\nb = = 2\n", |top| {
            top.number("a", "a number", 0..=9);
            top.number("b", "a number", 0..=9);
        });
        assert!(found[0].starts_with("spec.toml:2: "), "{found:?}");
    }

    #[test]
    fn numbers_out_of_range_and_duplicates_are_mistakes() {
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

    /// The mistakes of two files that are read as one, `a.toml` before `b.toml`.
    fn together(a: &str, b: &str, read: impl FnOnce(&Table<'_, '_>)) -> Vec<String> {
        let document = Document::joined(vec![(Path::new("d/a.toml"), a), (Path::new("b.toml"), b)]);
        let read = |top: &Table<'_, '_>| {
            read(top);
            Some(())
        };
        let mistakes = document.read(read).err().unwrap_or_default();
        mistakes.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tables_are_joined_and_lists_are_appended() {
        let found = together(
            "names = [\"x\"]\n[disk]\ncapacity = \"1\"\nfile = \"f\"\n[[size]]\nid = \"s\"\n",
            "names = [\"y\"]\n[disk]\nspeed = 3\n[[size]]\nid = \"m\"\n",
            |top| {
                let names = top.texts("names", any);
                let files: Vec<_> = names.iter().map(Located::file).collect();
                assert_eq!((values(names), files), (vec!["x".to_owned(), "y".to_owned()], vec![0, 1]));
                top.table("disk", |disk| {
                    assert_eq!(disk.keys(), ["capacity", "file", "speed"]);
                    assert_eq!(disk.path("file", "a file", Ok), Some(PathBuf::from("d/f")));
                    disk.number("speed", "a speed", 0..=9)?;
                    disk.required("capacity", "a size", size)
                });
                assert_eq!(top.tables("size", "none", |size| size.required("id", "an id", any)), ["s", "m"]);
            },
        );
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_key_in_two_files_is_a_mistake() {
        let found = together(
            "name = \"a\"\nnames = [\"x\"]\nown = 1\n\n[disk]\n",
            "name = \"a\"\nnames = [\n  \"y\",\n  \"x\",\n]\n[disk]\ncapacity = \"big\"\n",
            |top| {
                top.required("name", "a name", any);
                top.required("version", "a version", any);
                top.texts("names", any);
                top.table("disk", |disk| disk.required("capacity", "a size", size));
            },
        );
        assert_eq!(
            found,
            [
                "d/a.toml:3: own: is no key of the document: known are disk, name, names, version",
                "b.toml:1: name: is given in d/a.toml:1 already: files that belong together do not differ",
                "b.toml:1: version: is missing: give a version",
                "b.toml:4: names[1]: `x` is listed twice",
                "b.toml:7: disk.capacity: `big` is no size",
            ]
        );
    }
}
