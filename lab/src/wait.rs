//! Waits for conditions, never for a fixed time.

use std::time::{Duration, Instant};

use anyhow::bail;

/// Longest pause between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(200);

/// Waits until `condition` holds, at most `limit`.
///
/// # Errors
/// When it does not hold in time. The error has the last error of the condition: an error before that means "not
/// yet".
pub fn until(what: &str, limit: Duration, mut condition: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let mut interval = Duration::from_millis(5);
    let started = Instant::now();
    loop {
        let seen = condition();
        if matches!(seen, Ok(true)) {
            return Ok(());
        }
        if started.elapsed() >= limit {
            let limit = limit.as_secs();
            match seen {
                Err(error) => return Err(error.context(format!("waited {limit} s for {what}"))),
                Ok(_) => bail!("timed out after {limit} s: waited for {what}"),
            }
        }
        std::thread::sleep(interval);
        interval = (interval * 2).min(INTERVAL);
    }
}

/// As [`until`], for a condition that yields a value.
pub fn obtain<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let mut found = None;
    until(what, limit, || {
        found = look()?;
        Ok(found.is_some())
    })?;
    found.ok_or_else(|| anyhow::anyhow!("{what} vanished"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_before_the_limit_is_no_failure() {
        let mut looks = 0;
        let got = obtain("the third look", Duration::from_secs(600), || {
            looks += 1;
            if looks < 3 { bail!("not yet") } else { Ok(Some(looks)) }
        });
        assert_eq!(got.unwrap(), 3);
    }

    #[test]
    fn the_last_error_is_reported() {
        let error = until("a wonder", Duration::ZERO, || bail!("none seen")).unwrap_err();
        assert_eq!(format!("{error:#}"), "waited 0 s for a wonder: none seen");
    }
}
