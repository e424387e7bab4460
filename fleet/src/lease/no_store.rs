//! The store of a dry run: it has no leases, and refuses all requests.

use anyhow::bail;

use super::Store;

pub(super) struct NoStore;

impl NoStore {
    fn refused<T>(&self) -> anyhow::Result<T> {
        bail!("a dry run holds no lease")
    }
}

delegate! {
    impl Store for NoStore = refused {
        numbers() -> anyhow::Result<Vec<u64>>;
        exists(u64) -> anyhow::Result<bool>;
        make(u64) -> anyhow::Result<bool>;
        remove(u64) -> anyhow::Result<()>;
        read(u64, &str) -> anyhow::Result<Option<String>>;
        write(u64, &str, &str) -> anyhow::Result<()>;
        files(u64) -> anyhow::Result<Vec<String>>;
    }
}
