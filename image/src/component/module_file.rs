//! The parts of a Go module file that decide which upstream code is built: its own name, requirements and
//! replacements. Source: Go Modules Reference, "go.mod files". Independent of components.

/// The used parts of a module file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleFile {
    /// The module's own path.
    pub module: String,
    /// The required modules with their versions.
    pub requires: Vec<(String, String)>,
    pub replaces: Vec<Replace>,
}

/// A line such as `replace example.org/a v1.0.0 => example.org/b v1.2.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replace {
    /// The replaced module.
    pub path: String,
    /// The replaced version. `None` for all versions.
    pub version: Option<String>,
    /// The replacement: a module or a directory.
    pub by: String,
    /// The version of the replacement. `None` for a directory.
    pub by_version: Option<String>,
}

/// The code that an import of a module uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedModule {
    /// The module itself in this version.
    Version(String),
    /// A replacement: another module with its version, or a directory.
    Instead(String),
    /// Nothing: the module is not required.
    Nothing,
}

impl ModuleFile {
    /// Parses a module file.
    ///
    /// # Errors
    /// The number of an invalid line, from 1.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut file = Self::default();
        let mut block: Option<String> = None;
        for (index, line) in text.lines().enumerate() {
            let mut words = words(line).ok_or(index + 1)?;
            if words.is_empty() {
                continue;
            }
            let directive = match &block {
                Some(_) if words == [")"] => {
                    block = None;
                    continue;
                }
                Some(directive) => directive.clone(),
                None => {
                    let directive = words.remove(0);
                    if words == ["("] {
                        block = Some(directive);
                        continue;
                    }
                    directive
                }
            };
            file.add(&directive, &words).ok_or(index + 1)?;
        }
        if file.module.is_empty() || block.is_some() { Err(text.lines().count().max(1)) } else { Ok(file) }
    }

    fn add(&mut self, directive: &str, words: &[String]) -> Option<()> {
        match (directive, words) {
            ("module", [path]) => self.module = path.clone(),
            ("require", [path, version]) => self.requires.push((path.clone(), version.clone())),
            ("replace", words) => {
                let arrow = words.iter().position(|word| word == "=>")?;
                let (path, version) = path_and_version(&words[..arrow])?;
                let (by, by_version) = path_and_version(&words[arrow + 1..])?;
                self.replaces.push(Replace { path, version, by, by_version });
            }
            ("module" | "require", _) => return None,
            // go, toolchain, godebug, exclude, retract, tool, ignore: they do not choose code of a required module.
            // With -mod=readonly the required version is built.
            _ => {}
        }
        Some(())
    }

    /// The code that an import of the module `path` uses.
    pub fn taken(&self, path: &str) -> ResolvedModule {
        let Some((_, version)) = self.requires.iter().find(|(required, _)| required == path) else {
            return ResolvedModule::Nothing;
        };
        let of_path = || self.replaces.iter().filter(|replace| replace.path == path);
        let exact = of_path().find(|replace| replace.version.as_ref() == Some(version));
        match exact.or_else(|| of_path().find(|replace| replace.version.is_none())) {
            None => ResolvedModule::Version(version.clone()),
            Some(Replace { by, by_version: Some(version), .. }) if by == path => {
                ResolvedModule::Version(version.clone())
            }
            Some(Replace { by, by_version, .. }) => ResolvedModule::Instead(
                [by.as_str(), by_version.as_deref().unwrap_or_default()].join(" ").trim().to_owned(),
            ),
        }
    }
}

fn path_and_version(words: &[String]) -> Option<(String, Option<String>)> {
    match words {
        [path] => Some((path.clone(), None)),
        [path, version] => Some((path.clone(), Some(version.clone()))),
        _ => None,
    }
}

/// The words of a line without its comment. `None` if a quotation does not end.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() && !rest.starts_with("//") {
        let quote = rest.chars().next().filter(|first| ['"', '`'].contains(first));
        let (word, after) = match quote {
            Some(quote) => rest[1..].split_once(quote)?,
            None => {
                let end = rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len());
                let end = rest[..end].find("//").unwrap_or(end);
                rest.split_at(end)
            }
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
module example.org/own // comment

go 1.26.0
godebug default=go1.26

require example.org/one v1.2.3
require (
    "example.org/two/v2" v2.0.1 // indirect
    example.org/three v0.0.0
    example.org/four v1.0.0
    example.org/five v1.0.0
)
exclude example.org/one v1.2.4
retract [v0.1.0, v0.2.0]

replace (
    example.org/three => example.org/three v0.36.3
    example.org/four v1.0.0 => example.org/fork v1.0.0
    example.org/four => example.org/four v1.0.9
    example.org/five => ../five
)
replace example.org/one v1.0.0 => example.org/one v9.0.0
"#;

    #[test]
    fn requirements_and_replacements_decide_the_code() {
        let file = ModuleFile::parse(FILE).unwrap();
        assert_eq!(file.module, "example.org/own");
        let version = |version: &str| ResolvedModule::Version(version.to_owned());
        let instead = |instead: &str| ResolvedModule::Instead(instead.to_owned());
        for (path, expected) in [
            ("example.org/one", version("v1.2.3")),
            ("example.org/two/v2", version("v2.0.1")),
            ("example.org/three", version("v0.36.3")),
            ("example.org/four", instead("example.org/fork v1.0.0")),
            ("example.org/five", instead("../five")),
            ("example.org/six", ResolvedModule::Nothing),
        ] {
            assert_eq!(file.taken(path), expected, "{path}");
        }
    }

    #[test]
    fn errors_have_the_number_of_the_line() {
        for (text, line) in [
            ("module a\nrequire b\n", 2),
            ("module a\n\nreplace b v1 c\n", 3),
            ("module a\nrequire \"b v1\n", 2),
            ("module a\nrequire (\n\tb v1\n", 3),
            ("go 1.26\n", 1),
        ] {
            assert_eq!(ModuleFile::parse(text), Err(line), "{text}");
        }
    }
}
