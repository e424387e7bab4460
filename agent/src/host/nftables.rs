//! Tables of nftables that no other program changes. Each has one owner.

use std::fmt::Display;

use crate::host::command::{self, Command, Runner};

#[derive(Debug)]
pub struct Table {
    family: &'static str,
    name: &'static str,
    /// The table's input, and the kernel's listing after that: a listing differs from the input.
    laid: Option<(String, Vec<u8>)>,
}

impl Table {
    pub const fn new(family: &'static str, name: &'static str) -> Self {
        Self { family, name, laid: None }
    }

    /// Makes the table contain these sets and chains and nothing else. True if it had to be written. After an error the
    /// table has not changed, because the change is one transaction.
    pub fn ensure(&mut self, runner: &dyn Runner, content: &str) -> Result<bool, command::Error> {
        if let Some((wanted, listing)) = &self.laid
            && wanted == content
            && runner.run(&self.list()).is_ok_and(|present| present == *listing)
        {
            return Ok(false);
        }
        let Self { family, name, .. } = self;
        // Added first, because a missing table cannot be deleted.
        let input =
            format!("add table {family} {name}\ndelete table {family} {name}\ntable {family} {name} {{\n{content}}}\n");
        runner.run(&Command::new("nft").args(["-f", "-"]).input(input))?;
        self.laid = Some((content.to_owned(), runner.run(&self.list())?));
        Ok(true)
    }

    fn list(&self) -> Command {
        Command::new("nft").args(["list", "table", self.family, self.name])
    }
}

/// An anonymous set (nft(8), "Sets").
pub fn set<T: Display>(elements: &[T]) -> String {
    let elements: Vec<String> = elements.iter().map(T::to_string).collect();
    format!("{{ {} }}", elements.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::Host;
    use crate::host::fixture::Namespace;

    #[test]
    fn table_is_written_once_and_survives_failures() {
        let namespace = Namespace::new("nft");
        namespace.run(|| {
            let nft = |arguments: &[&str]| Host.run(&Command::new("nft").args(arguments)).unwrap();
            nft(&["add", "table", "inet", "somebodys"]);
            let mut table = Table::new("inet", "ours");
            let good = "\tchain c {\n\t\ttcp dport { 22, 80 } accept\n\t}\n";
            assert!(table.ensure(&Host, good).unwrap());
            assert!(!table.ensure(&Host, good).unwrap());
            let listing = nft(&["list", "ruleset"]);
            // Input that nft cannot parse, and input that the kernel rejects.
            for bad in ["\tchain c { nonsense }\n", "\tchain c {\n\t\tjump nowhere\n\t}\n"] {
                table.ensure(&Host, bad).unwrap_err();
                assert_eq!(nft(&["list", "ruleset"]), listing, "{bad}");
                assert!(!table.ensure(&Host, good).unwrap(), "the former rules hold");
            }
            nft(&["add", "rule", "inet", "ours", "c", "drop"]);
            assert!(table.ensure(&Host, good).unwrap());
            nft(&["flush", "ruleset"]);
            assert!(table.ensure(&Host, good).unwrap());
            assert!(table.ensure(&Host, "\tchain c {\n\t}\n").unwrap());
        });
    }
}
