//! Instructions of the kernel's virtual machine (eBPF, RFC 9669), put together by hand: no compiler, no library.

/// A register. Arguments of a call are in 1 to 5, which it destroys; its result is in 0; 6 to 9 outlive it; 10 is the
/// end of 512 bytes of stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(pub u8);

/// How many bytes a load or store moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// One byte.
    Byte = 0x10,
    /// Two.
    Half = 0x08,
    /// Four.
    Word = 0x00,
    /// Eight.
    Double = 0x18,
}

/// What a jump asks. Comparisons are of 64 bits without sign, but for the narrow ones, which are of 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum When {
    /// Left and right are equal.
    Equal = 0x15,
    /// They are not.
    NotEqual = 0x55,
    /// Left is the greater one.
    Greater = 0x25,
    /// The left one is less.
    Less = 0xa5,
    /// They are not equal in their low 32 bits.
    NarrowNotEqual = 0x56,
}

/// What is done to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Do {
    /// Right is added.
    Add = 0x07,
    /// Right is taken away.
    Subtract = 0x17,
    /// Only the bits that right has too are left.
    And = 0x57,
    /// Shifted up.
    ShiftUp = 0x67,
    /// Shifted down, zeros behind it.
    ShiftDown = 0x77,
    /// Becomes right.
    Move = 0xb7,
}

/// The right side of a jump or an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// What a register holds.
    Register(Register),
    /// This number, its sign carried up to 64 bits.
    Number(i32),
}

impl From<Register> for Right {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Right {
    fn from(number: i32) -> Self {
        Self::Number(number)
    }
}

/// Bit of a code that says that the right side is a register.
const FROM_REGISTER: u8 = 0x08;

/// A place of a program to which jumps lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program that is being written.
#[derive(Debug, Default)]
pub struct Code {
    done: Vec<[u8; 8]>,
    /// Where each label stands.
    labels: Vec<Option<usize>>,
    /// Which jump leads to which label.
    jumps: Vec<(usize, Label)>,
}

impl Code {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn put(&mut self, code: u8, to: Register, from: Register, offset: i16, number: i32) -> &mut Self {
        let [low, high] = offset.to_le_bytes();
        let [a, b, c, d] = number.to_le_bytes();
        self.done.push([code, from.0 << 4 | to.0, low, high, a, b, c, d]);
        self
    }

    fn put_right(&mut self, code: u8, to: Register, right: Right, offset: i16) -> &mut Self {
        match right {
            Right::Register(from) => self.put(code | FROM_REGISTER, to, from, offset, 0),
            Right::Number(number) => self.put(code, to, Register(0), offset, number),
        }
    }

    /// Loads from the address in `from` and `offset` bytes on.
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) -> &mut Self {
        self.put(0x61 | width as u8, to, from, offset, 0)
    }

    /// Stores at the address in `to` and `offset` bytes on.
    pub fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) -> &mut Self {
        self.put(0x63 | width as u8, to, from, offset, 0)
    }

    /// Changes a register, all 64 bits of it.
    pub fn change(&mut self, to: Register, what: Do, right: impl Into<Right>) -> &mut Self {
        self.put_right(what as u8, to, right.into(), 0)
    }

    /// Puts the address of a map there, of which this is the descriptor.
    pub fn map(&mut self, to: Register, map: i32) -> &mut Self {
        self.wide(to, Register(1), map)
    }

    /// Puts the address of the memory of a map of one entry there, of which this is the descriptor.
    pub fn memory(&mut self, to: Register, map: i32) -> &mut Self {
        self.wide(to, Register(2), map)
    }

    fn wide(&mut self, to: Register, meaning: Register, number: i32) -> &mut Self {
        self.put(0x18, to, meaning, 0, number).put(0, Register(0), Register(0), 0, 0)
    }

    /// Adds `from` to the 32 bits at the address in `to` and `offset` bytes on, as one step; `from` is then what was
    /// there before.
    pub fn fetch_add(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.put(0xc3, to, from, offset, 0x01)
    }

    /// Puts `from` into the 32 bits there if they are those of register 0, as one step; register 0 is then what was
    /// there before.
    pub fn exchange_if(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.put(0xc3, to, from, offset, 0xf1)
    }

    /// As [`Code::exchange_if`], of 64 bits.
    pub fn exchange_double_if(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.put(0xdb, to, from, offset, 0xf1)
    }

    /// Calls a function of the kernel by its number.
    pub fn call(&mut self, function: i32) -> &mut Self {
        self.put(0x85, Register(0), Register(0), 0, function)
    }

    /// Ends the program with what register 0 holds.
    pub fn exit(&mut self) -> &mut Self {
        self.put(0x95, Register(0), Register(0), 0, 0)
    }

    /// A place that is named now and stands somewhere later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Says that it stands here.
    pub fn stand(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.done.len());
        self
    }

    /// Jumps, if the answer is yes.
    pub fn jump(&mut self, left: Register, when: When, right: impl Into<Right>, label: Label) -> &mut Self {
        self.jumps.push((self.done.len(), label));
        self.put_right(when as u8, left, right.into(), 0)
    }

    /// Jumps.
    pub fn go(&mut self, label: Label) -> &mut Self {
        self.jumps.push((self.done.len(), label));
        self.put(0x05, Register(0), Register(0), 0, 0)
    }

    /// The program as the kernel reads it, 8 bytes an instruction.
    ///
    /// # Panics
    /// If a jump leads to a label that stands nowhere, or further than 32,767 instructions.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let place = self.labels[label.0].expect("every label stands somewhere");
            // Jumps lead forward only, and are counted from the instruction after.
            let steps = i16::try_from(place - at - 1).expect("a short program");
            self.done[at][2..4].copy_from_slice(&steps.to_le_bytes());
        }
        self.done.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes as RFC 9669 has them.
    #[test]
    fn instructions_are_what_the_kernel_reads() {
        let (a, b) = (Register(1), Register(6));
        let mut code = Code::new();
        let end = code.label();
        code.load(Width::Half, a, b, 12)
            .jump(a, When::NotEqual, 8, end)
            .jump(a, When::Greater, b, end)
            .change(a, Do::Add, -2)
            .store(Width::Word, b, -4, a)
            .map(a, 7)
            .call(51)
            .stand(end)
            .exit();
        let expected: [[u8; 8]; 9] = [
            [0x69, 0x61, 12, 0, 0, 0, 0, 0],
            [0x55, 0x01, 6, 0, 8, 0, 0, 0],
            [0x2d, 0x61, 5, 0, 0, 0, 0, 0],
            [0x07, 0x01, 0, 0, 0xfe, 0xff, 0xff, 0xff],
            [0x63, 0x16, 0xfc, 0xff, 0, 0, 0, 0],
            [0x18, 0x11, 0, 0, 7, 0, 0, 0],
            [0; 8],
            [0x85, 0, 0, 0, 51, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(code.finish(), expected.concat());
    }
}
