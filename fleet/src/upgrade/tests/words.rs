//! Commands and options are the caller's to name: another program than `kaas` may drive an upgrade.

use std::fs;
use std::path::Path;

/// The string literals of a source, without those of its tests, that name a command or an option. The remedies in tables of
/// codes are for the documentation.
fn named(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let is_read = |line: &&str| !line.trim_start().starts_with("//") && !is_row(line);
    let code = source.lines().filter(is_read).collect::<Vec<_>>().join("\n");
    let literals = code.split('"').skip(1).step_by(2);
    let option = |text: &str| text.match_indices("--").any(|(at, _)| text[at + 2..].starts_with(char::is_alphabetic));
    let command = |text: &str| ["kaas ", "kaas-agent"].iter().any(|name| text.contains(name));
    literals.filter(|text| option(text) || command(text)).map(str::to_owned).collect()
}

/// Whether a line is a row of a table of codes.
fn is_row(line: &str) -> bool {
    let name = line.trim_start().split(", \"").next().unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_') && line.ends_with("\";")
}

fn look(directory: &Path, found: &mut Vec<String>, files: &mut usize) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            look(&path, found, files);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            *files += 1;
            found.extend(named(&fs::read_to_string(&path).unwrap()).into_iter().map(|text| format!("{name}: {text}")));
        }
    }
}

#[test]
fn no_message_names_a_command_or_an_option() {
    let (mut found, mut files) = (Vec::new(), 0);
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found, &mut files);
    assert!(files > 30, "{files}");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn commands_and_options_are_found_in_literals_only() {
    let source = "// say --downgrade\nlet a = \"if that is meant, say --downgrade\";\nlet b = \"see `kaas-agent status`\";\n\
                  let c = \"kaas-upgrade\";\n    OVA, \"upgrade.ova\", \"It is damaged.\", \"Run `kaas explain`.\";\n#[cfg(test)]\nlet d = \"kaas control upgrade\";";
    assert_eq!(named(source), ["if that is meant, say --downgrade", "see `kaas-agent status`"]);
}
