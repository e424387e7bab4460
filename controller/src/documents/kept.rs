//! Each reason is used, each field is read by the controller, and each value of a field is distinguished from the others. The
//! test reads the sources: the compiler treats a library's public items as used.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Fields and values of the kinds that the controller neither reads nor sets, each with its reason to exist.
const EXCEPTIONS: [(&str, &str); 8] = [
    ("Commit::Auto", "it is each value but Manual"),
    ("Condition.last_transition_time", "it is set with the condition, for operators"),
    ("Described.meaning", "it is for the reference"),
    ("FromNamespaces::Listed", "it is each value but All"),
    ("OperationSpec.from_version", "it is written for operators"),
    ("OperationSpec.to_size", "it is written for operators: `fleet` reads the plan"),
    ("Restore.recovery_key_ref", "`restore` as a whole is NotSupported"),
    ("TenantClusterStatus.cluster_uid", "it is not set: a cluster is known by its CA"),
];

/// The fields, values and reasons of a file: `Struct.field`, `Enum::Variant` or the reason alone, each with its last word.
fn promises(text: &str) -> Vec<(String, String)> {
    let (mut found, mut within) = (Vec::new(), None);
    for line in text.lines() {
        let opens = [("pub struct ", "."), ("pub enum ", "::"), ("reasons! ", "")];
        let opened = |(begin, joint): &(&str, &'static str)| {
            let name = line.strip_prefix(*begin)?.strip_suffix('{')?;
            Some((name.trim(), *joint))
        };
        match opens.iter().find_map(opened) {
            Some(opened) => within = Some(opened),
            None if line == "}" => within = None,
            None => {}
        }
        let Some((name, joint)) = within else { continue };
        let item = line.trim_start();
        let margin = line.len() - item.len();
        let word = match joint {
            "." if margin == 4 => item.strip_prefix("pub ").and_then(|field| Some(field.split_once(':')?.0)),
            "::" if margin == 4 => item.strip_suffix(','),
            "" if margin == 8 => item.split_once(" = ").and_then(|(reason, _)| reason.split(' ').next()),
            _ => None,
        };
        let is_word = |word: &&str| word.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
        if let Some(word) = word.filter(is_word) {
            let name = if joint.is_empty() { String::new() } else { format!("{name}{joint}") };
            found.push((format!("{name}{word}"), word.to_owned()));
        }
    }
    found
}

/// The promises that a field of the table of properties keeps, in the words of [`in_row_words`]. `site.proxy.https` keeps `site`
/// of the spec, `proxy` of `Site`, `https` of `Proxy`, and the values of an enum `Https`.
fn promises_of_row(field: &str) -> Vec<String> {
    let names: Vec<String> = ["TenantClusterSpec"].into_iter().chain(field.split('.')).map(str::to_lowercase).collect();
    let values = names.last().map(|name| format!("{name}::"));
    names.windows(2).map(|pair| pair.join(".")).chain(values).collect()
}

/// A promise in lower case without underscores, and without the value of an enum.
fn in_row_words(promise: &str) -> String {
    let end = promise.find("::").map_or(promise.len(), |at| at + 2);
    promise[..end].replace('_', "").to_lowercase()
}

/// The words of code, except those that only set a field or name a call.
fn words(code: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (mut found, mut rest) = (BTreeSet::new(), code);
    while let Some(begin) = rest.find(is_part) {
        rest = &rest[begin..];
        let (word, after) = rest.split_at(rest.find(|letter: char| !is_part(letter)).unwrap_or(rest.len()));
        if after.starts_with("::") || !after.starts_with([':', '(']) {
            found.insert(word);
        }
        rest = after;
    }
    found
}

/// A file without its tests and comments.
fn code(text: &str) -> String {
    let begins = ["", "pub(super) "].map(|seen| text.find(&format!("#[cfg(test)]\n{seen}mod tests {{")));
    let text = &text[..begins.into_iter().flatten().min().unwrap_or(text.len())];
    text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// Whether a file is for tests only, or has reasons as texts.
fn is_none_of_the_code(file: &str) -> bool {
    const NONE: [&str; 6] = ["tests.rs", "fixture.rs", "in_memory.rs", "bed.rs", "points.rs", "pending_event.rs"];
    let name = file.rsplit('/').next().unwrap_or(file);
    NONE.contains(&name) || name.ends_with("_tests.rs") || file.contains("/tests/") || file.starts_with("run/scale")
}

/// Whether a file belongs to neither the kinds, their documents nor tests.
fn is_code(file: &str) -> bool {
    !["objects/", "documents/"].iter().any(|room| file.starts_with(room)) && !is_none_of_the_code(file)
}

/// The files below a directory with their contents, by paths below `source`.
fn files(source: &Path, directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(source, &path, found);
        } else {
            let file = path.strip_prefix(source).unwrap().to_str().unwrap().to_owned();
            found.push((file, fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn reasons_are_set_and_fields_are_read() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&source, &source, &mut all);
    let code: String = all.iter().filter(|(file, _)| is_code(file)).map(|(_, text)| code(text)).collect();
    let used = words(&code);
    let kinds = all.iter().filter(|(file, _)| file.starts_with("objects/") && !is_none_of_the_code(file));
    let promised: Vec<(String, String)> = kinds.flat_map(|(_, text)| promises(text)).collect();
    assert!(promised.len() > 350 && used.len() > 1000, "{} {}", promised.len(), used.len());
    for (exception, _) in EXCEPTIONS {
        assert!(promised.iter().any(|(promise, _)| promise == exception), "{exception} no longer exists");
    }
    let is_exception = |promise: &str| EXCEPTIONS.iter().any(|(exception, _)| *exception == promise);
    // The value of a field in the table of properties reaches nodes as it is.
    let rows = contract::properties::table().iter().flat_map(|property| property.spec);
    let in_rows: BTreeSet<String> = rows.flat_map(|field| promises_of_row(field)).collect();
    let is_kept = |promise: &str, word: &str| {
        used.contains(word) || in_rows.contains(&in_row_words(promise)) || is_exception(promise)
    };
    let broken = promised.iter().filter(|(promise, word)| !is_kept(promise, word));
    let broken: Vec<&str> = broken.map(|(promise, _)| promise.as_str()).collect();
    assert!(broken.is_empty(), "not used by the controller: {}", broken.join(", "));
}

#[test]
fn row_keeps_only_promises_of_its_path() {
    let kept = promises_of_row("site.proxy.noProxy");
    assert_eq!(kept, ["tenantclusterspec.site", "site.proxy", "proxy.noproxy", "noproxy::"]);
    assert_eq!(in_row_words("Proxy.no_proxy"), "proxy.noproxy");
    let kept: Vec<String> = ["podSecurity", "network.serviceVIPs.ranges", "backup.credentialsRef"]
        .iter()
        .flat_map(|field| promises_of_row(field))
        .collect();
    for (promise, expected) in [
        ("TenantClusterSpec.pod_security", true),
        ("PodSecurity::Baseline", true),
        ("ServiceVips.ranges", true),
        ("IPPoolSpec.ranges", false),
        ("MachineSpec.network", false),
        ("ProviderSpec.credentials_ref", false),
    ] {
        assert_eq!(kept.contains(&in_row_words(promise)), expected, "{promise}");
    }
}

#[test]
fn unused_reasons_and_fields_are_found() {
    let kinds = "\
pub struct Spec {
    pub size: u32,
    #[serde(default)]
    pub kept: Kept,
}

pub enum Kept {
    #[default]
    No,
    Yes,
}

reasons! {
    Reason:
    Ready {
        Serves as Ready = True,
        Lost = False,
    }
}
";
    let promised: Vec<String> = promises(kinds).into_iter().map(|(promise, _)| promise).collect();
    assert_eq!(promised, ["Spec.size", "Spec.kept", "Kept::No", "Kept::Yes", "Serves", "Lost"]);
    let of = |text: &str| {
        let (code, promised) = (code(text), promises(kinds));
        let used = words(&code);
        let broken = promised.into_iter().filter(|(_, word)| !used.contains(word.as_str()));
        broken.map(|(promise, _)| promise).collect::<Vec<_>>()
    };
    let written = "// Lost\nlet spec = Spec { size: 3, kept: Kept::No };\nsay(Serves);\n";
    let tested = "#[cfg(test)]\nmod tests {\n    Lost; spec.size\n}\n";
    assert_eq!(of(&format!("{written}{tested}")), ["Spec.size", "Spec.kept", "Kept::Yes", "Lost"]);
    assert_eq!(of("match spec.kept { Kept::No => spec.size, Kept::Yes => Lost, _ => Serves }"), [""; 0]);
}
