//! Lists of the API server, page by page (Kubernetes API concepts, "Retrieving large results sets in chunks"). Each answer is
//! read whole, however long a list and its objects are.

use std::ops::ControlFlow;

use anyhow::{Context as _, anyhow};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::host::https;

/// How many objects are asked for at once. If their answer is longer than any that is read, so many are asked for one by one.
const PAGE: usize = 100;

/// A page of a list.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: Metadata,
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    /// Where the next page begins. Empty or missing on the last one.
    #[serde(default, rename = "continue")]
    next: String,
}

/// Returns `None` for an answer that is too long, and other errors as they are.
pub fn unless_too_long<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Err(error) if error.root_cause().is::<https::TooLong>() => Ok(None),
        answer => answer.map(Some),
    }
}

/// All objects of the list at a path. `get` asks for one page, and gives none that is too long.
///
/// # Errors
/// Those of `get`, or what it gives is no list of such objects.
pub fn items<T, E>(path: &str, get: impl FnMut(&str) -> Result<Option<Vec<u8>>, E>) -> Result<Vec<T>, E>
where
    T: DeserializeOwned,
    E: From<anyhow::Error>,
{
    items_that(path, get, |_| true)
}

/// Those of them that are to be kept: of the others no more than a page is held.
pub fn items_that<T, E>(
    path: &str,
    get: impl FnMut(&str) -> Result<Option<Vec<u8>>, E>,
    keep: impl Fn(&T) -> bool,
) -> Result<Vec<T>, E>
where
    T: DeserializeOwned,
    E: From<anyhow::Error>,
{
    let mut items = Vec::new();
    each(path, get, |item| {
        items.extend(Some(item).filter(&keep));
        ControlFlow::Continue(())
    })?;
    Ok(items)
}

/// Gives them one after the other, until `take` has enough: no more than a page is held.
pub fn each<T, E>(
    path: &str,
    mut get: impl FnMut(&str) -> Result<Option<Vec<u8>>, E>,
    mut take: impl FnMut(T) -> ControlFlow<()>,
) -> Result<(), E>
where
    T: DeserializeOwned,
    E: From<anyhow::Error>,
{
    let joint = if path.contains('?') { '&' } else { '?' };
    let (mut from, mut singles) = (String::new(), 0_usize);
    loop {
        let limit = if singles > 0 { 1 } else { PAGE };
        let body = match get(&format!("{path}{joint}limit={limit}{from}"))? {
            Some(body) => body,
            None if singles > 0 => return Err(anyhow!("an object of the list {path} is too long").into()),
            None => {
                singles = PAGE;
                continue;
            }
        };
        singles = singles.saturating_sub(1);
        let page: Page<T> = serde_json::from_slice(&body).context("understanding a page of a list")?;
        if page.items.into_iter().try_for_each(&mut take).is_break() || page.metadata.next.is_empty() {
            return Ok(());
        }
        let next: String = url::form_urlencoded::byte_serialize(page.metadata.next.as_bytes()).collect();
        from = format!("&continue={next}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn all(path: &str, get: impl Fn(&str) -> anyhow::Result<&'static str>) -> anyhow::Result<Vec<u32>> {
        items(path, |path| unless_too_long(get(path).map(|text| text.as_bytes().to_vec())))
    }

    #[test]
    fn a_list_has_all_pages_or_fails() {
        let of = |path: &str| {
            all(path, |path| match path {
                "/pods?limit=100" => Ok(r#"{"metadata": {"continue": "a+b="}, "items": [1, 2]}"#),
                "/pods?limit=100&continue=a%2Bb%3D" => Ok(r#"{"metadata": {"continue": "c"}, "items": []}"#),
                "/pods?limit=100&continue=c" => Ok(r#"{"metadata": {"continue": ""}, "items": [3]}"#),
                "/short?x=y&limit=100" => Ok(r#"{"metadata": {}, "items": [4]}"#),
                "/strange?limit=100" => Ok("[]"),
                other => bail!("{other}"),
            })
        };
        assert_eq!(of("/pods").unwrap(), [1, 2, 3]);
        assert_eq!(of("/short?x=y").unwrap(), [4]);
        let page = |_: &str| anyhow::Ok(Some(br#"{"metadata": {}, "items": [1, 2, 3]}"#.to_vec()));
        assert_eq!(items_that::<u32, _>("/pods", page, |one| *one != 2).unwrap(), [1, 3]);
        assert!(of("/strange").is_err() && of("/expired").is_err());
    }

    #[test]
    fn long_objects_are_read_one_by_one() {
        let of = |path: &str| {
            all(path, |path| match path {
                "/long?limit=100" | "/longer?limit=100" | "/longer?limit=1" => Err(https::TooLong.into()),
                "/long?limit=1" => Ok(r#"{"metadata": {"continue": "b"}, "items": [1]}"#),
                "/long?limit=1&continue=b" => Ok(r#"{"items": [2]}"#),
                other => bail!("{other}"),
            })
        };
        assert_eq!(of("/long").unwrap(), [1, 2]);
        assert!(of("/longer").unwrap_err().to_string().contains("an object of the list /longer is too long"));
    }
}
