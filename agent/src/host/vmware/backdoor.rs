//! Messages to the VMware hypervisor over its backdoor port: one request, one reply.
//!
//! The protocol is that of open-vm-tools' `lib/message/message.c` and `lib/include/backdoor_def.h`, in its
//! low-bandwidth form: four bytes at a time through registers. It works on every hypervisor version and with encrypted
//! memory. Reading an OVF environment takes a few milliseconds.

/// The registers of one exchange with the hypervisor. Only these six are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The magic number of a request.
    pub eax: u32,
    pub ebx: u32,
    /// Command (low half) and step of the message protocol; in an answer its status (high half).
    pub ecx: u32,
    /// Port (low half) and channel; in an answer the kind of the reply (high half).
    pub edx: u32,
    /// First half of the channel's cookie.
    pub esi: u32,
    /// Second half of the channel's cookie.
    pub edi: u32,
}

/// The backdoor port: the hypervisor's, or an emulated one in tests.
pub trait Port {
    fn exchange(&mut self, registers: Registers) -> Registers;
}

/// Longest request: the hypervisor's limit (`GUESTMSG_MAX_IN_SIZE`).
pub const LONGEST_REQUEST: usize = 64 * 1024;

/// Longest accepted reply. It is longer than any accepted OVF environment.
pub const LONGEST_REPLY: usize = (1 << 20) + 1024;

/// Attempts for a message that a checkpoint (a snapshot or vMotion) interrupts.
const ATTEMPTS: usize = 4;

const MAGIC: u32 = 0x564d_5868;
const PORT: u32 = 0x5658;
const COMMAND_MESSAGE: u32 = 30;
/// The protocol "RPCI", requests from the guest.
const RPCI: u32 = 0x4943_5052;
const FLAG_COOKIE: u32 = 0x8000_0000;

const OPEN: u32 = 0;
const SEND_SIZE: u32 = 1;
const SEND_PAYLOAD: u32 = 2;
const RECEIVE_SIZE: u32 = 3;
const RECEIVE_PAYLOAD: u32 = 4;
const RECEIVE_STATUS: u32 = 5;
const CLOSE: u32 = 6;

const SUCCESS: u32 = 0x0001;
const HAS_REPLY: u32 = 0x0002;
const CHECKPOINT: u32 = 0x0010;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the hypervisor opens no RPC channel")]
    Closed,
    #[error("the hypervisor refused the step \"{step}\" of a message (status {status:#06x})")]
    Refused { step: &'static str, status: u32 },
    /// Checkpoints interrupted every attempt.
    #[error("snapshots or migrations cut off the message {ATTEMPTS} times")]
    Checkpoint,
    #[error("the request has {0} bytes, more than {LONGEST_REQUEST}")]
    RequestTooLong(usize),
    #[error("the reply has {0} bytes, more than {LONGEST_REPLY}")]
    ReplyTooLong(usize),
    /// The hypervisor's answer does not match the request.
    #[error("the hypervisor broke the message protocol at the step \"{0}\"")]
    Protocol(&'static str),
}

/// Sends a request and returns the reply. The channel is always closed. After [`Error::Refused`] or
/// [`Error::Checkpoint`] the hypervisor may still have processed the request.
pub fn call(port: &mut impl Port, request: &[u8]) -> Result<Vec<u8>, Error> {
    if request.len() > LONGEST_REQUEST {
        return Err(Error::RequestTooLong(request.len()));
    }
    let mut channel = Channel::open(port)?;
    let reply = channel.send(request).and_then(|()| channel.receive());
    channel.close();
    reply
}

struct Channel<'a, P: Port> {
    port: &'a mut P,
    number: u32,
    cookie: (u32, u32),
}

struct Answer {
    status: u32,
    /// The high half of edx.
    kind: u32,
    argument: u32,
}

impl Answer {
    fn succeeded(&self) -> bool {
        self.status & SUCCESS != 0
    }

    fn hit_checkpoint(&self) -> bool {
        self.status & CHECKPOINT != 0
    }

    /// Whether the step succeeded. False after a checkpoint.
    fn unless_checkpoint(&self, step: &'static str) -> Result<bool, Error> {
        match (self.succeeded(), self.hit_checkpoint()) {
            (true, _) => Ok(true),
            (false, true) => Ok(false),
            (false, false) => Err(Error::Refused { step, status: self.status }),
        }
    }
}

impl<'a, P: Port> Channel<'a, P> {
    fn open(port: &'a mut P) -> Result<Self, Error> {
        let mut channel = Self { port, number: 0, cookie: (0, 0) };
        // Hypervisors without cookies refuse the flag.
        for flags in [FLAG_COOKIE, 0] {
            let registers = channel.step(OPEN, RPCI | flags);
            if (registers.ecx >> 16) & SUCCESS != 0 {
                channel.number = registers.edx >> 16;
                channel.cookie = if flags == 0 { (0, 0) } else { (registers.esi, registers.edi) };
                return Ok(channel);
            }
        }
        Err(Error::Closed)
    }

    fn step(&mut self, step: u32, argument: u32) -> Registers {
        self.port.exchange(Registers {
            eax: MAGIC,
            ebx: argument,
            ecx: COMMAND_MESSAGE | (step << 16),
            edx: PORT | (self.number << 16),
            esi: self.cookie.0,
            edi: self.cookie.1,
        })
    }

    fn ask(&mut self, step: u32, argument: u32) -> Answer {
        let registers = self.step(step, argument);
        Answer { status: registers.ecx >> 16, kind: registers.edx >> 16, argument: registers.ebx }
    }

    fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        'attempt: for _ in 0..ATTEMPTS {
            if !self.ask(SEND_SIZE, request.len() as u32).unless_checkpoint("send size")? {
                continue;
            }
            for four in request.chunks(4) {
                let mut word = [0; 4];
                word[..four.len()].copy_from_slice(four);
                if !self.ask(SEND_PAYLOAD, u32::from_le_bytes(word)).unless_checkpoint("send data")? {
                    continue 'attempt;
                }
            }
            return Ok(());
        }
        Err(Error::Checkpoint)
    }

    fn receive(&mut self) -> Result<Vec<u8>, Error> {
        'attempt: for _ in 0..ATTEMPTS {
            let size = self.ask(RECEIVE_SIZE, 0);
            if !size.unless_checkpoint("receive size")? {
                continue;
            }
            if size.status & HAS_REPLY == 0 {
                return Ok(Vec::new());
            }
            if size.kind != SEND_SIZE {
                return Err(Error::Protocol("receive size"));
            }
            let length = size.argument as usize;
            if length > LONGEST_REPLY {
                return Err(Error::ReplyTooLong(length));
            }
            let mut reply = Vec::with_capacity(length.next_multiple_of(4));
            while reply.len() < length {
                let data = self.ask(RECEIVE_PAYLOAD, SUCCESS);
                if !data.unless_checkpoint("receive data")? {
                    continue 'attempt;
                }
                if data.kind != SEND_PAYLOAD {
                    return Err(Error::Protocol("receive data"));
                }
                reply.extend(data.argument.to_le_bytes());
            }
            reply.truncate(length);
            if !self.ask(RECEIVE_STATUS, SUCCESS).unless_checkpoint("acknowledge")? {
                continue;
            }
            return Ok(reply);
        }
        Err(Error::Checkpoint)
    }

    /// Closes the channel. The hypervisor reclaims channels that it refuses to close.
    fn close(mut self) {
        self.ask(CLOSE, 0);
    }
}

#[cfg(test)]
pub(crate) mod emulated {
    //! The hypervisor's side of the protocol, as strict as the real one. Each step is accepted only in its order, on
    //! the right channel and with its cookie.

    use std::collections::BTreeMap;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum ChannelState {
        Closed,
        Open,
        Taking { left: usize },
        Answering,
        Giving { at: usize },
        Given,
    }

    pub struct Hypervisor {
        pub values: BTreeMap<String, Vec<u8>>,
        /// If false, guests may not set anything.
        pub writable: bool,
        pub cookies: bool,
        /// Exchanges that a checkpoint interrupts, counted from the first.
        pub checkpoints: Vec<usize>,
        /// Exchanges that the hypervisor refuses.
        pub refusals: Vec<usize>,
        /// Added to the reported size of replies.
        pub oversize: u32,
        pub wrong_kind: bool,
        pub exchanges: usize,
        pub opened: usize,
        pub closed: usize,
        state: ChannelState,
        request: Vec<u8>,
        reply: Vec<u8>,
    }

    impl Default for Hypervisor {
        fn default() -> Self {
            Self {
                values: BTreeMap::new(),
                writable: true,
                cookies: true,
                checkpoints: Vec::new(),
                refusals: Vec::new(),
                oversize: 0,
                wrong_kind: false,
                exchanges: 0,
                opened: 0,
                closed: 0,
                state: ChannelState::Closed,
                request: Vec::new(),
                reply: Vec::new(),
            }
        }
    }

    const COOKIE: (u32, u32) = (0x1234_5678, 0x9abc_def0);
    const CHANNEL: u32 = 3;

    impl Hypervisor {
        pub fn with(key: &str, value: impl AsRef<[u8]>) -> Self {
            let mut hypervisor = Self::default();
            hypervisor.values.insert(key.to_owned(), value.as_ref().to_vec());
            hypervisor
        }

        fn answer(&mut self) -> Vec<u8> {
            let request = String::from_utf8_lossy(&self.request).into_owned();
            let words: Vec<&str> = request.splitn(3, ' ').collect();
            match words.as_slice() {
                ["info-get", key] => match self.values.get(*key) {
                    Some(value) => [b"1 ", value.as_slice()].concat(),
                    None => b"0 No value found".to_vec(),
                },
                ["info-set", _, _] if !self.writable => b"0 Permission denied".to_vec(),
                // As on VMware: an empty value is not accepted.
                ["info-set", key, value] if !value.is_empty() => {
                    self.values.insert((*key).to_owned(), value.as_bytes().to_vec());
                    b"1 ".to_vec()
                }
                _ => b"0 Unknown command".to_vec(),
            }
        }
    }

    impl Port for Hypervisor {
        fn exchange(&mut self, mut registers: Registers) -> Registers {
            self.exchanges += 1;
            let Registers { eax, ebx, ecx, edx, esi, edi } = registers;
            assert_eq!((eax, ecx & 0xffff, edx & 0xffff), (0x564d_5868, 30, 0x5658));
            let step = ecx >> 16;
            let cookie = if self.cookies { COOKIE } else { (0, 0) };
            if step != OPEN {
                assert_eq!((edx >> 16, (esi, edi)), (CHANNEL, cookie), "wrong channel or cookie");
            }
            if self.checkpoints.contains(&self.exchanges) && !matches!(step, OPEN | CLOSE) {
                // Incomplete steps are forgotten.
                self.state = match self.state {
                    ChannelState::Taking { .. } | ChannelState::Open => ChannelState::Open,
                    _ => ChannelState::Answering,
                };
                registers.ecx = CHECKPOINT << 16;
                return registers;
            }
            if self.refusals.contains(&self.exchanges) {
                registers.ecx = 0;
                return registers;
            }
            let mut kind = 0;
            let mut status = SUCCESS;
            match (step, self.state) {
                (OPEN, ChannelState::Closed) if self.cookies || ebx & FLAG_COOKIE == 0 => {
                    assert_eq!(ebx & !FLAG_COOKIE, u32::from_le_bytes(*b"RPCI"));
                    self.opened += 1;
                    self.state = ChannelState::Open;
                    kind = CHANNEL;
                    (registers.esi, registers.edi) = cookie;
                }
                (SEND_SIZE, ChannelState::Open) => {
                    self.request.clear();
                    self.state = ChannelState::Taking { left: ebx as usize };
                }
                (SEND_PAYLOAD, ChannelState::Taking { left }) => {
                    let taken = left.min(4);
                    self.request.extend(&ebx.to_le_bytes()[..taken]);
                    self.state = ChannelState::Taking { left: left - taken };
                    if left == taken {
                        self.reply = self.answer();
                        self.state = ChannelState::Answering;
                    }
                }
                (RECEIVE_SIZE, ChannelState::Answering) => {
                    status |= HAS_REPLY;
                    kind = SEND_SIZE;
                    registers.ebx = self.reply.len() as u32 + self.oversize;
                    self.state = ChannelState::Giving { at: 0 };
                }
                (RECEIVE_PAYLOAD, ChannelState::Giving { at }) if at < self.reply.len() => {
                    kind = SEND_PAYLOAD;
                    let mut word = [0xee; 4];
                    let end = self.reply.len().min(at + 4);
                    word[..end - at].copy_from_slice(&self.reply[at..end]);
                    registers.ebx = u32::from_le_bytes(word);
                    self.state =
                        if end == self.reply.len() { ChannelState::Given } else { ChannelState::Giving { at: end } };
                }
                (RECEIVE_STATUS, ChannelState::Given) => self.state = ChannelState::Open,
                (CLOSE, state) if state != ChannelState::Closed => {
                    self.closed += 1;
                    self.state = ChannelState::Closed;
                }
                _ => status = 0,
            }
            if self.wrong_kind && step != OPEN {
                kind = 7;
            }
            registers.ecx = status << 16;
            registers.edx = (kind << 16) | PORT;
            registers
        }
    }
}

#[cfg(test)]
mod tests {
    use super::emulated::Hypervisor;
    use super::*;

    const REQUEST: &[u8] = b"info-get guestinfo.ovfEnv";

    fn hypervisor(size: usize) -> (Hypervisor, Vec<u8>) {
        let value: Vec<u8> = (0..size).map(|index| b'a' + (index % 23) as u8).collect();
        (Hypervisor::with("guestinfo.ovfEnv", &value), [b"1 ".as_slice(), &value].concat())
    }

    #[test]
    fn values_of_any_length_arrive() {
        for size in [1, 2, 3, 4, 5, 4096, 65_537, 1 << 20] {
            let (mut port, expected) = hypervisor(size);
            assert!(call(&mut port, REQUEST).unwrap() == expected, "{size}");
            assert_eq!((port.opened, port.closed), (1, 1));
        }
    }

    #[test]
    fn requests_of_any_length_arrive() {
        for length in 1..20 {
            let mut port = Hypervisor::default();
            let value = "v".repeat(length);
            assert_eq!(call(&mut port, format!("info-set k {value}").as_bytes()), Ok(b"1 ".to_vec()));
            assert_eq!(port.values["k"], value.as_bytes());
        }
        let mut port = Hypervisor::default();
        assert_eq!(call(&mut port, &[b'x'; LONGEST_REQUEST + 1]), Err(Error::RequestTooLong(LONGEST_REQUEST + 1)));
        assert_eq!(port.exchanges, 0);
    }

    #[test]
    fn hypervisor_without_cookies_is_supported() {
        let (mut port, expected) = hypervisor(100);
        port.cookies = false;
        assert_eq!(call(&mut port, REQUEST), Ok(expected));
    }

    #[test]
    fn message_survives_a_checkpoint_at_any_exchange() {
        let (mut port, expected) = hypervisor(40);
        call(&mut port, REQUEST).unwrap();
        for at in 2..port.exchanges {
            let (mut port, _) = hypervisor(40);
            port.checkpoints = vec![at];
            assert_eq!(call(&mut port, REQUEST).as_ref(), Ok(&expected), "at exchange {at}");
            assert_eq!(port.closed, 1);
        }
    }

    #[test]
    fn repeated_checkpoints_are_an_error() {
        let (mut port, _) = hypervisor(40);
        port.checkpoints = (1..1000).collect();
        assert_eq!(call(&mut port, REQUEST), Err(Error::Checkpoint));
        assert_eq!(port.closed, 1);
    }

    #[test]
    fn refusal_is_an_error_and_closes_the_channel() {
        let (mut port, _) = hypervisor(40);
        call(&mut port, REQUEST).unwrap();
        for at in 2..port.exchanges {
            let (mut port, _) = hypervisor(40);
            port.refusals = vec![at];
            assert!(matches!(call(&mut port, REQUEST), Err(Error::Refused { .. })), "at exchange {at}");
            assert_eq!(port.closed, 1);
        }
        let (mut port, _) = hypervisor(40);
        port.refusals = vec![1, 2];
        assert_eq!(call(&mut port, REQUEST), Err(Error::Closed));
    }

    #[test]
    fn inconsistent_replies_are_detected() {
        let (mut port, _) = hypervisor(40);
        port.oversize = u32::MAX - 100;
        assert!(matches!(call(&mut port, REQUEST), Err(Error::ReplyTooLong(_))));
        assert_eq!(port.closed, 1);

        let (mut port, _) = hypervisor(40);
        port.oversize = 8;
        assert!(matches!(call(&mut port, REQUEST), Err(Error::Refused { step: "receive data", .. })));

        let (mut port, _) = hypervisor(40);
        port.wrong_kind = true;
        assert_eq!(call(&mut port, REQUEST), Err(Error::Protocol("receive size")));
    }
}
