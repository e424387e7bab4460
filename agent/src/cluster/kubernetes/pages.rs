//! Lists of the API server, page by page (Kubernetes API concepts, "Retrieving large results sets in chunks"): however long a
//! list is, each answer is read whole.

use anyhow::Context as _;
use serde::Deserialize;

/// The part of a list that says where the next page begins.
#[derive(Deserialize)]
struct Page {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    /// Empty or missing on the last page.
    #[serde(default, rename = "continue")]
    next: String,
}

/// The pages of the list at a path that has a limit among its parameters; `get` asks for one.
///
/// # Errors
/// Those of `get`, or what it gives is no list.
pub(super) fn pages(path: &str, mut get: impl FnMut(&str) -> anyhow::Result<Vec<u8>>) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut pages = vec![get(path)?];
    while let Some(last) = pages.last() {
        let Page { metadata } = serde_json::from_slice(last).context("understanding a page of a list")?;
        if metadata.next.is_empty() {
            break;
        }
        let next: String = url::form_urlencoded::byte_serialize(metadata.next.as_bytes()).collect();
        pages.push(get(&format!("{path}&continue={next}"))?);
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn all_pages_are_asked_for_or_none_is_given() {
        let path = "/api/v1/pods?limit=5";
        let pages_of = |path| {
            pages(path, |path| match path {
                "/api/v1/pods?limit=5" => Ok(br#"{"metadata": {"continue": "a+b="}}"#.to_vec()),
                "/api/v1/pods?limit=5&continue=a%2Bb%3D" => Ok(br#"{"metadata": {"continue": "c"}}"#.to_vec()),
                "/api/v1/pods?limit=5&continue=c" => Ok(br#"{"metadata": {"continue": ""}}"#.to_vec()),
                "/short" => Ok(br#"{"metadata": {}}"#.to_vec()),
                "/strange" => Ok(b"[]".to_vec()),
                other => bail!("{other}"),
            })
        };
        assert_eq!(pages_of(path).unwrap().len(), 3);
        assert_eq!(pages_of("/short").unwrap().len(), 1);
        assert!(pages_of("/strange").is_err() && pages_of("/expired").is_err());
    }
}
