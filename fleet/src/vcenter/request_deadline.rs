//! Checks that a client's requests have arrived or failed when a successor begins. Knows nothing of what they do.

use vsphere::{CHANGE_LIMIT, Client, GONE};

use crate::lease::MARGIN;

/// A successor waits this long: a request has arrived by then, or never will. A second is left, of which a line with
/// long round trips may need a half ([`GONE`]).
const _: () = assert!(CHANGE_LIMIT.as_secs() + GONE.as_secs() < MARGIN.as_secs());

/// Refuses a client whose requests may arrive later than a successor waits.
pub(super) fn in_time(client: &Client) -> anyhow::Result<()> {
    let (arrives, margin) = (client.arrives_within().as_secs(), MARGIN.as_secs());
    anyhow::ensure!(
        client.arrives_within() < MARGIN,
        "a change by this client may arrive {arrives} s after it was permitted: less than {margin} s are allowed"
    );
    Ok(())
}
