//! Seconds of Unix time: the present ones, and those in records, as RFC 3339 in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serializer, de, ser};

/// 9999-12-31T23:59:59Z. RFC 3339 has no later times.
const LAST: u64 = 253_402_300_799;

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(crate) fn serialize<S: Serializer>(seconds: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    if *seconds > LAST {
        return Err(ser::Error::custom(format!("{seconds} s of Unix time are after the year 9999")));
    }
    serializer.collect_str(&shown(*seconds))
}

/// A time for messages. A time after the year 9999 is shown as the last one of that year.
pub(crate) fn shown(seconds: u64) -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds.min(LAST)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let time = humantime::parse_rfc3339(&String::deserialize(deserializer)?).map_err(de::Error::custom)?;
    Ok(time.duration_since(UNIX_EPOCH).map_err(de::Error::custom)?.as_secs())
}

pub(crate) mod option {
    use super::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    struct Time(#[serde(deserialize_with = "super::deserialize")] u64);

    pub(crate) fn serialize<S: Serializer>(time: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(seconds) => super::serialize(seconds, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Time>::deserialize(deserializer)?.map(|Time(seconds)| seconds))
    }
}
