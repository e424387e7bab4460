//! Tables of nftables that nobody else touches, each with one keeper.

use crate::host::command::{self, Command, Runner};

/// A table and its keeper's memory of it.
#[derive(Debug)]
pub struct Table {
    family: &'static str,
    name: &'static str,
    /// What the table was laid from, and how the kernel listed it then: a listing is not written the way the input was.
    laid: Option<(String, Vec<u8>)>,
}

impl Table {
    /// The table of this name and family (nft(8), "Address families").
    pub const fn new(family: &'static str, name: &'static str) -> Self {
        Self { family, name, laid: None }
    }

    /// Sees to it that the table holds these sets and chains and nothing else, and says whether it had to be laid.
    ///
    /// # Errors
    /// When `nft` fails; the table is as before then, the change being one transaction.
    pub fn ensure(&mut self, runner: &dyn Runner, content: &str) -> Result<bool, command::Error> {
        if let Some((wanted, listing)) = &self.laid
            && wanted == content
            && runner.run(&self.list()).is_ok_and(|present| present == *listing)
        {
            return Ok(false);
        }
        let Self { family, name, .. } = self;
        // Added first: what is not there cannot be deleted.
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
