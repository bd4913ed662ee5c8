//! What host and guest say to each other over the one virtio-serial port.
//!
//! A frame is one byte of kind, four bytes of length (little-endian) and that many bytes. The
//! kernel's console is a different device, so kernel noise can never be taken for a frame. Neither
//! side may trust a length: both stop at [`MAX_FRAME`].

use std::io::{self, Read, Write};

/// The port's name, as the guest finds it in `/sys/class/virtio-ports/*/name`.
pub const PORT_NAME: &str = "uverbs-vm";

/// No frame is longer than this.
pub const MAX_FRAME: usize = 1 << 20;

/// How much standard input may be under way to the guest before it says it has taken some.
pub const STDIN_WINDOW: usize = 256 << 10;

/// What the guest tells the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHost {
    /// The port is open; the kernel's release.
    Hello(String),
    /// A step of the guest's own set-up is done; shown with `--verbose`.
    Progress(String),
    /// The devices are there and jobs can run.
    Ready,
    /// The guest could not make itself ready; why.
    Failed(String),
    /// The job wrote to its standard output.
    Stdout(Vec<u8>),
    /// The job wrote to its standard error.
    Stderr(Vec<u8>),
    /// So many bytes of standard input were taken by the job.
    StdinTaken(u32),
    /// The job ended.
    Done(Done),
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The exit status, or 128 and the signal's number.
    pub status: u8,
    /// What the job wrote into its verdict file, when it was a case and did.
    pub verdict: Option<String>,
}

/// What the host tells the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGuest {
    /// Run this.
    Run(Job),
    /// The next bytes of the job's standard input.
    Stdin(Vec<u8>),
    /// The job's standard input is at its end.
    StdinEnd,
    /// Kill the running job and all its children.
    Kill,
    /// No more jobs.
    PowerOff,
}

/// A program to run in the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// The program's path in the guest, and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Its whole environment, each `NAME=VALUE`.
    pub env: Vec<Vec<u8>>,
}

fn put_list(out: &mut Vec<u8>, list: &[Vec<u8>]) {
    put_len(out, list.len());
    for item in list {
        put_len(out, item.len());
        out.extend_from_slice(item);
    }
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    // Frames are at most MAX_FRAME long, checked when they are written.
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

/// Takes fields off a payload; every step is checked.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: usize) -> io::Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(head)
    }

    fn len(&mut self) -> io::Result<usize> {
        let bytes: [u8; 4] = self.bytes(4)?.try_into().map_err(|_| malformed())?;
        usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| malformed())
    }

    fn list(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let count = self.len()?;
        // Not reserved in advance: the count is only as good as the bytes behind it.
        let mut list = Vec::new();
        for _ in 0..count {
            let len = self.len()?;
            list.push(self.bytes(len)?.to_vec());
        }
        Ok(list)
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed frame")
}

fn text(payload: Vec<u8>) -> String {
    String::from_utf8_lossy(&payload).into_owned()
}

impl ToHost {
    fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Hello(s) => (b'H', s.clone().into_bytes()),
            Self::Progress(s) => (b'P', s.clone().into_bytes()),
            Self::Ready => (b'R', Vec::new()),
            Self::Failed(s) => (b'F', s.clone().into_bytes()),
            Self::Stdout(b) => (b'o', b.clone()),
            Self::Stderr(b) => (b'e', b.clone()),
            Self::StdinTaken(n) => (b't', n.to_le_bytes().to_vec()),
            Self::Done(d) => {
                let mut p = vec![d.status, u8::from(d.verdict.is_some())];
                p.extend_from_slice(d.verdict.as_deref().unwrap_or_default().as_bytes());
                (b'D', p)
            }
        }
    }

    fn decode(kind: u8, p: Vec<u8>) -> io::Result<Self> {
        Ok(match kind {
            b'H' => Self::Hello(text(p)),
            b'P' => Self::Progress(text(p)),
            b'R' => Self::Ready,
            b'F' => Self::Failed(text(p)),
            b'o' => Self::Stdout(p),
            b'e' => Self::Stderr(p),
            b't' => Self::StdinTaken(u32::from_le_bytes(p.try_into().map_err(|_| malformed())?)),
            b'D' => {
                let mut f = Fields(&p);
                let status = *f.bytes(1)?.first().ok_or_else(malformed)?;
                let has = f.bytes(1)?.first() == Some(&1);
                Self::Done(Done {
                    status,
                    verdict: has.then(|| text(f.0.to_vec())),
                })
            }
            _ => return Err(malformed()),
        })
    }

    /// Writes this as one frame.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, payload) = self.encode();
        write_frame(to, kind, &payload)
    }

    /// Reads one frame; `None` at the end of the stream.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        read_frame(from)?
            .map(|(k, p)| Self::decode(k, p))
            .transpose()
    }
}

impl ToGuest {
    fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Run(job) => {
                let mut p = Vec::new();
                put_list(&mut p, &job.argv);
                put_list(&mut p, &job.env);
                (b'R', p)
            }
            Self::Stdin(b) => (b'i', b.clone()),
            Self::StdinEnd => (b'.', Vec::new()),
            Self::Kill => (b'K', Vec::new()),
            Self::PowerOff => (b'Q', Vec::new()),
        }
    }

    fn decode(kind: u8, p: Vec<u8>) -> io::Result<Self> {
        Ok(match kind {
            b'R' => {
                let mut f = Fields(&p);
                Self::Run(Job {
                    argv: f.list()?,
                    env: f.list()?,
                })
            }
            b'i' => Self::Stdin(p),
            b'.' => Self::StdinEnd,
            b'K' => Self::Kill,
            b'Q' => Self::PowerOff,
            _ => return Err(malformed()),
        })
    }

    /// Writes this as one frame.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, payload) = self.encode();
        write_frame(to, kind, &payload)
    }

    /// Reads one frame; `None` at the end of the stream.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        read_frame(from)?
            .map(|(k, p)| Self::decode(k, p))
            .transpose()
    }
}

fn write_frame(to: &mut impl Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    if payload.len() > MAX_FRAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "more than 1 MiB in one message; are the arguments that long?",
        ));
    }
    let mut frame = Vec::with_capacity(payload.len() + 5);
    frame.push(kind);
    put_len(&mut frame, payload.len());
    frame.extend_from_slice(payload);
    to.write_all(&frame)?;
    to.flush()
}

fn read_frame(from: &mut impl Read) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut kind = [0; 1];
    loop {
        match from.read(&mut kind) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = usize::try_from(u32::from_le_bytes(len)).map_err(|_| malformed())?;
    if len > MAX_FRAME {
        return Err(malformed());
    }
    let mut payload = vec![0; len];
    from.read_exact(&mut payload)?;
    Ok(Some((kind[0], payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_wire() -> io::Result<()> {
        let job = Job {
            argv: vec![b"/init".to_vec(), Vec::new()],
            env: vec![b"A=b".to_vec()],
        };
        let down = [
            ToGuest::Run(job),
            ToGuest::Stdin(vec![0, 255]),
            ToGuest::StdinEnd,
            ToGuest::Kill,
            ToGuest::PowerOff,
        ];
        let mut wire = Vec::new();
        for m in &down {
            m.write(&mut wire)?;
        }
        let mut from = wire.as_slice();
        for m in &down {
            assert_eq!(ToGuest::read(&mut from)?.as_ref(), Some(m));
        }
        assert_eq!(ToGuest::read(&mut from)?, None);

        let up = [
            ToHost::Hello("6.12".into()),
            ToHost::Progress("x".into()),
            ToHost::Ready,
            ToHost::Failed("no".into()),
            ToHost::Stdout(vec![1]),
            ToHost::Stderr(vec![]),
            ToHost::StdinTaken(7),
            ToHost::Done(Done {
                status: 137,
                verdict: None,
            }),
            ToHost::Done(Done {
                status: 0,
                verdict: Some("passed".into()),
            }),
        ];
        let mut wire = Vec::new();
        for m in &up {
            m.write(&mut wire)?;
        }
        let mut from = wire.as_slice();
        for m in &up {
            assert_eq!(ToHost::read(&mut from)?.as_ref(), Some(m));
        }
        Ok(())
    }

    #[test]
    fn hostile_frames_are_refused() {
        assert!(ToHost::read(&mut &[b'o', 255, 255, 255, 255][..]).is_err());
        assert!(ToHost::read(&mut &[b'?', 0, 0, 0, 0][..]).is_err());
        assert!(ToHost::read(&mut &[b'D', 0, 0, 0, 0][..]).is_err());
        assert!(ToGuest::read(&mut &[b'R', 4, 0, 0, 0, 255, 255, 255, 255][..]).is_err());
        assert!(ToHost::read(&mut &[b'o', 2, 0, 0, 0, 1][..]).is_err());
    }
}
