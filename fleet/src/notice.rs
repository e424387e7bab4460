//! What an engine tells that looks, decides and acts until something is so. Words for people are the caller's.

#[derive(Clone, Copy, Debug)]
pub enum Notice<'a, Action, Wait> {
    /// Another command's end is waited for, in these words.
    TakingOver(&'a str),
    /// An image is laid ready, which may take minutes.
    Staging,
    Begun(&'a Action),
    Waits(&'a Wait),
}
