//! Lists, page by page (Kubernetes, "API Concepts", retrieving large results sets in chunks). The server may be hostile:
//! each list ends.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde::Deserialize;
use url::form_urlencoded::byte_serialize;

/// Bounds of one list.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many objects to ask for at once.
    pub page: usize,
    /// How many requests to make.
    pub pages: usize,
    /// How long to begin requests.
    pub time: Duration,
}

/// One page of a list.
#[derive(Debug, Deserialize)]
pub struct Page<T> {
    #[serde(default)]
    metadata: Metadata,
    pub items: Vec<T>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    /// The token of the next page. Empty or missing on the last one.
    #[serde(default, rename = "continue")]
    next: String,
}

/// The progress of reading one list. The caller sends the requests.
pub struct ListReader<'a> {
    path: &'a str,
    limits: Limits,
    begun: Instant,
    asked: usize,
    /// How many objects to ask for one by one.
    singles: usize,
    from: String,
    /// Hashes of the tokens: a token may be as long as an answer.
    before: HashSet<u64>,
}

impl<'a> ListReader<'a> {
    pub fn new(path: &'a str, limits: Limits) -> Self {
        let (begun, from, before) = (Instant::now(), String::new(), HashSet::new());
        Self { path, limits, begun, asked: 0, singles: 0, from, before }
    }

    /// The path of the next request.
    ///
    /// # Errors
    /// The list has too many pages, or takes too long.
    pub fn request(&mut self) -> anyhow::Result<String> {
        let Limits { page, pages, time } = self.limits;
        if self.asked == pages {
            return Err(self.endless(&format!("it has more than {pages} pages")));
        }
        if self.begun.elapsed() > time {
            return Err(self.endless(&format!("it was not read within {} s", time.as_secs())));
        }
        self.asked += 1;
        let joint = if self.path.contains('?') { '&' } else { '?' };
        let limit = if self.singles > 0 { 1 } else { page };
        Ok(format!("{}{joint}limit={limit}{}", self.path, self.from))
    }

    /// Asks for the objects of a page one by one, because its answer is too long. False if it had one object only.
    pub fn split(&mut self) -> bool {
        std::mem::replace(&mut self.singles, self.limits.page) == 0
    }

    /// Goes to the page after this one. False after the last page.
    ///
    /// # Errors
    /// An earlier page had the same token.
    pub fn advance<T>(&mut self, Page { metadata: Metadata { next }, .. }: &Page<T>) -> anyhow::Result<bool> {
        self.singles = self.singles.saturating_sub(1);
        if next.is_empty() {
            return Ok(false);
        }
        if !self.before.insert(self.before.hasher().hash_one(next)) {
            return Err(self.endless("a page leads back to one before it"));
        }
        self.from = "&continue=".to_owned();
        self.from.extend(byte_serialize(next.as_bytes()));
        Ok(true)
    }

    pub fn endless(&self, why: &str) -> anyhow::Error {
        anyhow!("the list {} is left: {why}", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_ends() {
        let limits = Limits { page: 2, pages: 4, time: Duration::MAX };
        let page = |next: &str| Page::<()> { metadata: Metadata { next: next.to_owned() }, items: Vec::new() };
        let mut list = ListReader::new("/pods", limits);
        for number in 0..4 {
            list.request().unwrap();
            list.advance(&page(&number.to_string())).unwrap();
        }
        assert_eq!(list.request().unwrap_err().to_string(), "the list /pods is left: it has more than 4 pages");
        assert!(list.advance(&page("1")).unwrap_err().to_string().ends_with("a page leads back to one before it"));
        let mut list = ListReader::new("/pods", Limits { time: Duration::ZERO, ..limits });
        assert!(list.request().unwrap_err().to_string().ends_with("it was not read within 0 s"));
    }
}
