//! Whether the clock is plausible. Without side effects.

use std::time::{Duration, SystemTime};

use contract::codes;
use contract::finding::Finding;
use x509_parser::time::ASN1Time;

/// The longest use of an image. A clock after that is wrong.
const LONGEST_USE: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    pub now: SystemTime,
    /// The date of the image. The present time cannot be earlier.
    pub image: SystemTime,
}

impl Clock {
    pub fn implausible(&self) -> Option<Finding> {
        let seen = if self.now < self.image {
            format!("the clock says {}, but this image was made {}", show(self.now), show(self.image))
        } else if self.now > self.image + LONGEST_USE {
            format!("the clock says {}, more than 20 years after this image was made", show(self.now))
        } else {
            return None;
        };
        Some(codes::CLOCK_IMPLAUSIBLE.finding(
            "clock",
            seen,
            "Set the clock of the hypervisor's host, or give time servers; certificates made now would be useless",
        ))
    }
}

/// A time for messages, in UTC.
pub fn show(time: SystemTime) -> String {
    let seconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds),
    };
    ASN1Time::from_timestamp(seconds).map_or_else(|_| format!("{seconds} s since 1970"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_shown() {
        assert_eq!(show(SystemTime::UNIX_EPOCH), "Jan  1 00:00:00 1970 +00:00");
        assert!(show(SystemTime::UNIX_EPOCH - Duration::from_secs(86_400)).contains("1969"));
        assert!(show(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 50)).ends_with("s since 1970"));
    }
}
