//! The word check: comments, messages, pages and names of tests use the words of `docs/concepts/glossary.md`.
//!
//! `tests/words.lock` lists files that are older than the check, each with its refused patterns and a hash of its prose.
//! 1. A file with this hash passes, under any path. A change of code alone does not change the hash.
//! 2. Any other file must be clean, as a whole.
//! 3. In a Markdown file, each paragraph and each cell of a table counts as a file: most commits change a page.
//! 4. If no file has a hash of the lock, its line is stale. `make words` removes it, and never adds a line.
//! 5. `KAAS_WORDS=all` writes a new lock with all hits. Only a commit that changes the check itself does that.
//!
//! Strings in tests are not read: they are fixtures, and messages for developers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use prose::Prose;
use rules::{Hit, Rules};

use crate::places::workspace;

mod prose;
mod rules;
mod tests;

const LOCK: &str = "tests/words.lock";
/// How many hits one failure lists.
const SHOWN: usize = 40;

/// A file, or a paragraph of a page.
struct Part {
    path: String,
    /// Of the words. Line breaks and the order of paragraphs do not change it.
    hash: String,
    hits: Vec<Hit>,
}

impl Part {
    fn new(path: &str, prose: &[Prose], rules: &Rules) -> Self {
        let hits = prose.iter().flat_map(|prose| rules.hits(prose)).collect();
        Self { path: path.to_owned(), hash: hash(prose), hits }
    }

    fn line(&self) -> String {
        format!("{} {} {}\n", self.hits.len(), self.hash, self.path)
    }
}

/// FNV-1a with 64 bits, in hexadecimal digits.
fn hash(prose: &[Prose]) -> String {
    let mut texts: Vec<String> =
        prose.iter().map(|prose| prose.text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    texts.sort_unstable();
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = texts.iter().flat_map(|text| text.bytes().chain([b'\n'])).fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")
}

/// The parts of a file. Empty if the check does not read it.
fn parts(path: &str, text: &str, rules: &Rules) -> Vec<Part> {
    let Some(prose) = prose::of_file(path, text) else { return Vec::new() };
    if path.ends_with(".md") {
        return prose.iter().map(|one| Part::new(path, std::slice::from_ref(one), rules)).collect();
    }
    vec![Part::new(path, &prose, rules)]
}

/// The parts of all files that git knows or would add.
fn all_parts(root: &Path) -> Vec<Part> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().expect("git runs");
    assert!(output.status.success(), "{git:?}: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("paths in UTF-8");
    let names: BTreeSet<&str> = names.split_terminator('\0').collect();
    let rules = Rules::new();
    // Git still lists a file that was deleted and not committed.
    let texts = names.into_iter().filter_map(|name| Some((name, fs::read_to_string(root.join(name)).ok()?)));
    texts.flat_map(|(name, text)| parts(name, &text, &rules)).collect()
}

/// The lock's lines, by their hashes.
fn locked<'l>(lock: &'l str) -> BTreeMap<&'l str, &'l str> {
    let hash = |(at, line): (usize, &'l str)| {
        let mut fields = line.splitn(3, ' ');
        let is_count = fields.next().is_some_and(|count| count.parse::<usize>().is_ok());
        let hash = fields.next().filter(|hash| is_count && hash.len() == 16 && fields.next().is_some());
        let hash = hash.unwrap_or_else(|| panic!("{LOCK}:{}: no line `COUNT HASH PATH`: {line}", at + 1));
        (hash, line)
    };
    lock.lines().enumerate().map(hash).collect()
}

/// The hits of parts that are not in the lock, one a line.
fn new_hits(parts: &[Part], locked: &BTreeMap<&str, &str>) -> String {
    let is_new = |part: &&Part| !locked.contains_key(part.hash.as_str());
    let hits: Vec<(&str, &Hit)> =
        parts.iter().filter(is_new).flat_map(|part| part.hits.iter().map(|hit| (part.path.as_str(), hit))).collect();
    if hits.is_empty() {
        return String::new();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    hits.iter().for_each(|(path, _)| *counts.entry(path).or_default() += 1);
    let counts: String =
        counts.into_iter().map(|(path, count)| format!("{path}: {count} refused patterns\n")).collect();
    let first: String = hits.iter().take(SHOWN).map(|(path, hit)| message(path, hit)).collect();
    format!("Each file must be clean as a whole:\n{counts}The first {SHOWN}:\n{first}")
}

fn message(path: &str, hit: &Hit) -> String {
    let sentence: String = hit.sentence.chars().take(160).collect();
    format!("{path}:{}: {}, write {}: {sentence}\n", hit.line, hit.found, hit.instead)
}

/// The lines of the lock whose prose no file has.
fn stale(parts: &[Part], locked: &BTreeMap<&str, &str>) -> String {
    let hashes: BTreeSet<&str> = parts.iter().map(|part| part.hash.as_str()).collect();
    let lines: String =
        locked.iter().filter(|(hash, _)| !hashes.contains(*hash)).map(|(_, line)| format!("{line}\n")).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("{LOCK} has lines whose prose no file has. Run `make words`:\n{lines}")
    }
}

/// The lock for these parts. Without an old one, it has all parts with hits. The error has the hits of other parts.
fn renewed(parts: &[Part], lock: Option<&str>) -> Result<String, String> {
    let refused = lock.map(|lock| new_hits(parts, &locked(lock))).unwrap_or_default();
    if !refused.is_empty() {
        return Err(refused);
    }
    let with_hits = parts.iter().filter(|part| !part.hits.is_empty());
    let lines: BTreeSet<(&str, String)> = with_hits.map(|part| (part.path.as_str(), part.line())).collect();
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

#[test]
fn changed_prose_is_clean() {
    let (root, parts) = (workspace(), all_parts(&workspace()));
    assert!(parts.len() > 1000, "only {} files were read", parts.len());
    let lock = fs::read_to_string(root.join(LOCK)).expect(LOCK);
    let mode = std::env::var("KAAS_WORDS").unwrap_or_default();
    if !mode.is_empty() {
        let renewed = renewed(&parts, (mode != "all").then_some(lock.as_str()));
        let renewed = renewed.unwrap_or_else(|refused| panic!("`make words` adds no file to {LOCK}. {refused}"));
        return fs::write(root.join(LOCK), renewed).expect("the lock is written");
    }
    let locked = locked(&lock);
    let refused = new_hits(&parts, &locked) + &stale(&parts, &locked);
    assert!(refused.is_empty(), "{refused}See CONTRIBUTING.md, \"The word check\", and docs/concepts/glossary.md");
}
