//! The parts of the documentation that are made from the code's own tables, and a document's blocks that hold them.

use contract::{codes, paths, properties};

/// The generated parts, by the name of their block.
pub fn parts() -> [(&'static str, String); 3] {
    [
        ("properties", properties::reference_markdown()),
        ("paths", paths::markdown()),
        ("findings", codes::codes_markdown()),
    ]
}

/// `document` with each part in its block, between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
///
/// # Errors
/// The name of a part that has no such block.
pub fn renew(document: &str) -> Result<String, &'static str> {
    parts().into_iter().try_fold(document.to_owned(), |document, (name, part)| {
        let (before, rest) = document.split_once(&format!("<!-- {name}:begin -->")).ok_or(name)?;
        let (_, after) = rest.split_once(&format!("<!-- {name}:end -->")).ok_or(name)?;
        let part = part.trim();
        Ok(format!("{before}<!-- {name}:begin -->\n{part}\n<!-- {name}:end -->{after}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_says_what_the_code_says() {
        let readme = include_str!("../../README.md");
        let renewed = renew(readme).expect("a block for each part");
        assert!(renewed == readme, "README.md is behind the code: `make readme` renews it");
    }

    #[test]
    fn a_document_without_a_block_is_refused() {
        assert_eq!(renew("nothing here"), Err("properties"));
    }
}
