//! Lists of the API server, page by page. A list of any length is read; each answer is read whole.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use kube_rest::{Limits, ListReader, Page};
use serde::de::DeserializeOwned;

use crate::host::https;

/// More pages than etcd has room for, even of objects that are so long that each is a page.
const LIMITS: Limits = Limits { page: 100, pages: 100_000, time: Duration::from_secs(3600) };

/// `None` if the answer is too long.
pub fn unless_too_long<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Err(error) if error.root_cause().is::<https::TooLong>() => Ok(None),
        answer => answer.map(Some),
    }
}

/// All objects of the list at a path. `get` asks for one page, and returns `None` for one that is too long.
///
/// # Errors
/// Those of `get`; the answer is no list of such objects; the list does not end.
pub fn items<T, E>(path: &str, get: impl FnMut(&str) -> Result<Option<Vec<u8>>, E>) -> Result<Vec<T>, E>
where
    T: DeserializeOwned,
    E: From<anyhow::Error>,
{
    let mut items = Vec::new();
    each(path, get, |item| {
        items.push(item);
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
    let mut list = ListReader::new(path, LIMITS);
    loop {
        let body = match get(&list.request()?)? {
            Some(body) => body,
            None if list.split() => continue,
            None => return Err(anyhow!("an object of the list {path} is too long").into()),
        };
        let page: Page<T> = serde_json::from_slice(&body).context("understanding a page of a list")?;
        let is_last = !list.advance(&page)?;
        if page.items.into_iter().try_for_each(&mut take).is_break() || is_last {
            return Ok(());
        }
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
    fn a_list_is_read_whole_or_fails() {
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
        assert!(of("/strange").is_err() && of("/expired").is_err());
    }

    #[test]
    fn long_objects_are_asked_for_one_by_one() {
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
