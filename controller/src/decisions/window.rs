//! Whether a maintenance window is open: days and hours in UTC. Pure.

use k8s_openapi::jiff::Timestamp;

/// In the order of Unix days: 1 January 1970 was a Thursday.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const DAY: i64 = 24 * 3600;

/// Whether a window such as `Sat,Sun 02:00-06:00` is open at a time. A window from a later to an earlier hour spans midnight, and
/// opens on its days. Without days it opens on each day. Malformed text is never open.
pub fn is_open(window: &str, now: Timestamp) -> bool {
    let (days, hours) = window.rsplit_once(' ').map_or((None, window), |(days, hours)| (Some(days), hours));
    let Some((from, to)) = hours.split_once('-') else { return false };
    let (Some(from), Some(to)) = (minute(from), minute(to)) else { return false };
    let opens = |day: i64| {
        let name = usize::try_from(day.rem_euclid(7)).ok().and_then(|day| DAYS.get(day));
        days.is_none_or(|days| days.split(',').any(|day| Some(&day) == name))
    };
    let today = now.as_second().div_euclid(DAY);
    let at = now.as_second().rem_euclid(DAY) / 60;
    if from <= to {
        opens(today) && (from..to).contains(&at)
    } else {
        (opens(today) && at >= from) || (opens(today - 1) && at < to)
    }
}

/// Minute of the day of a time such as `02:30`.
fn minute(time: &str) -> Option<i64> {
    let (hours, minutes) = time.split_once(':')?;
    Some(hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        format!("2026-11-{time}:00Z").parse().unwrap()
    }

    #[test]
    fn window_opens_on_its_days_and_spans_midnight() {
        // 28 November 2026 is a Saturday.
        for (window, time, open) in [
            ("Sat 02:00-06:00", "28T02:00", true),
            ("Sat 02:00-06:00", "28T05:59", true),
            ("Sat 02:00-06:00", "28T06:00", false),
            ("Sat 02:00-06:00", "28T01:59", false),
            ("Sat 02:00-06:00", "29T03:00", false),
            ("Mon,Sat 02:00-06:00", "30T03:00", true),
            ("02:00-06:00", "26T03:00", true),
            ("Sat 22:30-02:00", "28T22:30", true),
            ("Sat 22:30-02:00", "29T01:59", true),
            ("Sat 22:30-02:00", "28T01:59", false),
            ("Sat 22:30-02:00", "29T22:30", false),
            ("whenever", "28T03:00", false),
        ] {
            assert_eq!(is_open(window, at(time)), open, "{window} at {time}");
        }
    }
}
