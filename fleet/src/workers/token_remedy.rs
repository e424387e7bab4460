//! The findings that a new token resolves. Knows nothing of how a worker gets one.

use contract::codes::{ENVIRONMENT_ABSENT, JOIN_TOKEN_REFUSED, PROPERTY_MISSING};
use contract::statement::asks_for_token;

use super::worker_record::WorkerRecord;

/// Whether a worker with this finding joins again once it gets a new token. A former member that lost the data on its system disk
/// reports what its former properties lack, or that their token has expired. With new properties it is the same node again.
pub(super) fn token_mends(machine: &WorkerRecord, code: &str) -> bool {
    let of_its_form = [PROPERTY_MISSING, JOIN_TOKEN_REFUSED, ENVIRONMENT_ABSENT];
    asks_for_token(code) || machine.has_joined() && of_its_form.iter().any(|one| one.code == code)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::tests::fake::pool;
    use super::*;

    #[test]
    fn missing_properties_need_a_token_only_after_joining() {
        let new = WorkerRecord::new(&pool(1), Uuid::from_u128(1), None, 0);
        let joined = WorkerRecord { joined_seconds: Some(9), ..new.clone() };
        for code in ["property.missing", "join.token-refused", "environment.absent"] {
            assert!(token_mends(&joined, code) && !token_mends(&new, code), "{code}");
        }
        assert!(token_mends(&new, "join.certificate-expired") && !token_mends(&joined, "join.wrong-ca"));
    }
}
