//! For tests and fuzz targets: a machine that runs programs as the kernel does, and panics wherever one would reach out
//! of bounds, use what a call has destroyed, or never end.

#[cfg(test)]
use super::program::shared;

const CONTEXT: u64 = 0x1000_0000;
const FRAME: u64 = 0x2000_0000;
const SHARED: u64 = 0x4000_0000;
/// End of the stack, which has 512 bytes.
const STACK: u64 = 0x3000_0000;
const STACK_BYTES: usize = 512;

/// What the bytes are that lie beyond the first part.
pub(super) const BEYOND: u8 = 0xbe;
/// Verdict of a frame that goes to a ring.
pub(super) const REDIRECT: u64 = 4;
/// What the program names the map of rings, and the shared memory.
pub(super) const RINGS: i32 = 11;
pub(super) const MEMORY: i32 = 12;

/// A frame at an interface, with all that a program can reach.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    /// The first part of the frame, which programs can read.
    pub(super) linear: &'a [u8],
    /// Bytes of the frame beyond it.
    pub(super) beyond: usize,
    /// Which queue it came on.
    pub(super) queue: u32,
    /// The processor that runs the program.
    pub(super) processor: u32,
    /// Which queues have a ring.
    pub(super) rings: &'a [u32],
    /// Memory shared with user space.
    pub(super) memory: &'a mut [u8],
    /// Bytes cut off at the beginning.
    pub(super) cut: usize,
}

/// The word at a place of the shared memory, as the kernel's map has it.
///
/// # Panics
/// If it lies outside.
#[cfg(any(test, feature = "fuzz"))]
#[must_use]
pub fn word(memory: &[u8], place: u64) -> u32 {
    let at = usize::try_from(place).unwrap();
    u32::from_le_bytes(memory[at..at + 4].try_into().unwrap())
}

/// Writes such a word.
///
/// # Panics
/// If it lies outside.
#[cfg(any(test, feature = "fuzz"))]
pub fn set_word(memory: &mut [u8], place: u64, word: u32) {
    let at = usize::try_from(place).unwrap();
    memory[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// What a program has written to its stack.
type Stack = [Option<u8>; STACK_BYTES];

impl Machine<'_> {
    /// Where these bytes lie: in the frame (not to be written), the context (neither), or the shared memory.
    fn read(&self, address: u64, bytes: usize) -> u64 {
        let mut value = [0; 8];
        let mut within = |base: u64, all: &[u8]| {
            let at = usize::try_from(address.checked_sub(base)?).ok()?;
            let found = all.get(at..at + bytes)?;
            value[..bytes].copy_from_slice(found);
            Some(())
        };
        let words = [
            u32::try_from(FRAME).unwrap() + u32::try_from(self.cut).unwrap(),
            u32::try_from(FRAME).unwrap() + u32::try_from(self.linear.len()).unwrap(),
            0,
            1,
            self.queue,
        ];
        let mut context = [0; 20];
        for (place, word) in context.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        let found = match address {
            SHARED.. => within(SHARED, self.memory),
            FRAME.. => within(FRAME, self.linear).filter(|_| address >= FRAME + self.cut as u64),
            _ => within(CONTEXT, &context).filter(|_| bytes == 4 && address.is_multiple_of(4)),
        };
        found.unwrap_or_else(|| panic!("{bytes} bytes read out of bounds at {address:#x}"));
        u64::from_le_bytes(value)
    }

    fn write(&mut self, address: u64, bytes: usize, value: u64) {
        let at = usize::try_from(address.checked_sub(SHARED).expect("only shared memory is written")).unwrap();
        let place = self.memory.get_mut(at..at + bytes).expect("a write inside of the shared memory");
        assert!(at.is_multiple_of(bytes), "an aligned write");
        place.copy_from_slice(&value.to_le_bytes()[..bytes]);
    }

    /// Runs a program to its end, and gives its verdict.
    pub(super) fn run(&mut self, program: &[u8]) -> u64 {
        let mut registers: [Option<u64>; 11] = [None; 11];
        registers[1] = Some(CONTEXT);
        registers[10] = Some(STACK);
        let mut stack: Stack = [None; STACK_BYTES];
        let mut at = 0;
        for _ in 0..10_000 {
            let [code, both, low, high, a, b, c, d] = program.as_chunks::<8>().0[at];
            let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
            let offset = i64::from(i16::from_le_bytes([low, high]));
            let number = i32::from_le_bytes([a, b, c, d]);
            at += 1;
            let read = |register: usize| registers[register].expect("a register that has been written");
            let right = || if code & 0x08 == 0 { i64::from(number).cast_unsigned() } else { read(from) };
            let width = || match code & 0x18 {
                0x10 => 1,
                0x08 => 2,
                0x00 => 4,
                _ => 8,
            };
            let mut jump = |yes: bool| {
                if yes {
                    assert!(offset >= 0, "a jump back");
                    at += usize::try_from(offset).unwrap();
                }
            };
            match (code & 7, code & 0xf0) {
                (1, _) if from == 10 => {
                    let at = on_stack(offset);
                    let bytes: Vec<u8> = stack[at..at + width()].iter().map(|byte| byte.expect("written")).collect();
                    let mut value = [0; 8];
                    value[..bytes.len()].copy_from_slice(&bytes);
                    registers[to] = Some(u64::from_le_bytes(value));
                }
                (3, 0x60 | 0x70) if to == 10 => {
                    let (at, bytes) = (on_stack(offset), read(from).to_le_bytes());
                    stack[at..at + width()].iter_mut().zip(bytes).for_each(|(place, byte)| *place = Some(byte));
                }
                (3, 0xd0) => {
                    assert_eq!((number, width()), (0xf1, 8), "an exchange of 64 bits");
                    let place = read(to).wrapping_add_signed(offset);
                    let before = self.read(place, 8);
                    if before == read(0) {
                        self.write(place, 8, read(from));
                    }
                    registers[0] = Some(before);
                }
                (1, _) => registers[to] = Some(self.read(read(from).wrapping_add_signed(offset), width())),
                (3, 0xc0) => {
                    let place = read(to).wrapping_add_signed(offset);
                    let before = self.read(place, 4);
                    if number == 0x01 {
                        self.write(place, 4, before.wrapping_add(read(from)));
                        registers[from] = Some(before);
                    } else {
                        assert_eq!(number, 0xf1, "an operation in one step");
                        if before == read(0) & 0xffff_ffff {
                            self.write(place, 4, read(from));
                        }
                        registers[0] = Some(before);
                    }
                }
                (3, _) => self.write(read(to).wrapping_add_signed(offset), width(), read(from)),
                (7, 0x00) => registers[to] = Some(read(to).wrapping_add(right())),
                (7, 0x10) => registers[to] = Some(read(to).wrapping_sub(right())),
                (7, 0x50) => registers[to] = Some(read(to) & right()),
                (7, 0x60) => registers[to] = Some(read(to) << right()),
                (7, 0x70) => registers[to] = Some(read(to) >> right()),
                (7, 0xb0) => registers[to] = Some(right()),
                (5, 0x00) => jump(true),
                (5, 0x10) => jump(read(to) == right()),
                (5, 0x50) => jump(read(to) != right()),
                (5, 0x20) => jump(read(to) > right()),
                (5, 0xa0) => jump(read(to) < right()),
                (6, 0x50) => jump(read(to) & 0xffff_ffff != right() & 0xffff_ffff),
                (5, 0x80) => {
                    let result =
                        self.call(number, [1, 2, 3, 4].map(|register: usize| registers[register].unwrap_or(0)));
                    registers[..6].fill(None);
                    registers[0] = Some(result);
                }
                (5, 0x90) => return read(0),
                (0, _) => {
                    at += 1;
                    let expected = if from == 1 { RINGS } else { MEMORY };
                    assert!(code == 0x18 && number == expected, "a map of ours");
                    registers[to] = Some(if from == 1 { u64::from(RINGS.cast_unsigned()) } else { SHARED });
                }
                other => panic!("an instruction {other:?}"),
            }
        }
        panic!("it does not end");
    }

    fn call(&mut self, function: i32, [one, two, three, four]: [u64; 4]) -> u64 {
        match function {
            8 => self.processor.into(),
            188 => {
                assert_eq!(one, CONTEXT);
                (self.linear.len() - self.cut + self.beyond) as u64
            }
            44 => {
                assert_eq!(one, CONTEXT);
                let cut = usize::try_from(two).unwrap();
                // The kernel wants an Ethernet header to be left.
                if cut + 14 > self.linear.len() {
                    return 22_u64.wrapping_neg();
                }
                self.cut = cut;
                0
            }
            189 => {
                assert_eq!(one, CONTEXT);
                let (from, bytes) = (usize::try_from(two).unwrap(), usize::try_from(four).unwrap());
                let whole = self.linear[self.cut..].iter().copied().chain(std::iter::repeat_n(BEYOND, self.beyond));
                let found: Vec<u8> = whole.skip(from).take(bytes).collect();
                let at = usize::try_from(three.checked_sub(SHARED).expect("only shared memory is written")).unwrap();
                let place = self.memory.get_mut(at..at + bytes).expect("a copy inside of the shared memory");
                // The kernel's checker wants to see that there is at least one.
                assert!(bytes > 0);
                if found.len() < bytes {
                    return 22_u64.wrapping_neg();
                }
                place.copy_from_slice(&found);
                0
            }
            51 => {
                assert_eq!(one, u64::from(RINGS.cast_unsigned()));
                if self.rings.iter().any(|ring| u64::from(*ring) == two) { REDIRECT } else { three }
            }
            other => panic!("function {other}"),
        }
    }
}

/// Where on the stack this lies.
fn on_stack(offset: i64) -> usize {
    let end = i64::try_from(STACK_BYTES).unwrap();
    usize::try_from(end + offset).ok().filter(|at| *at < STACK_BYTES).expect("a place on the stack")
}

/// Shared memory, all zero.
#[cfg(test)]
pub(super) fn memory() -> Vec<u8> {
    vec![0; usize::try_from(shared::BYTES).unwrap()]
}
