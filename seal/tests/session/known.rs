//! Known answers: what the wire has to look like. They were made by another implementation, in another language, out of
//! the rules that are written in `handshake` and `frames`.

use cutthrough_seal::{BESIDE, Cipher, EPOCH, Keys, Session};

use crate::sides::{meet, pair, shared};

const BODY: &[u8] = b"what a frame carries";
const NUMBERS: [u64; 6] = [0, 1, EPOCH - 1, EPOCH, BESIDE | EPOCH, 2 * EPOCH + 5];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Seals with one side, opens with the other; the bytes are the expected ones.
fn frames(from: &mut Session, to: &mut Session, expected: [&str; 6]) {
    let header: Vec<u8> = (0..48).collect();
    for (number, expected) in NUMBERS.into_iter().zip(expected) {
        let mut body = [0; BODY.len()];
        let tag = from.sealer.seal(number, &header, BODY, &mut body);
        assert_eq!(hex(&body) + &hex(&tag), expected, "frame {number}");
        to.opener.open(number, &header, &tag, &mut body).unwrap();
        assert_eq!(body, BODY);
    }
}

fn handshake(keys: (&Keys, &Keys), cipher: Cipher, expected: [&str; 2]) -> (Session, Session) {
    let (first, second, ours, theirs) = meet(keys, cipher);
    assert_eq!([hex(&first), hex(&second)], expected);
    assert_eq!((ours.cipher(), theirs.cipher()), (cipher, cipher));
    (ours, theirs)
}

#[test]
fn a_shared_key_and_aes() {
    let (mut ours, mut theirs) = handshake(
        (&shared(), &shared()),
        Cipher::Aes256Gcm,
        [
            "c1a8e3af92e86a0db95d5a086b107e5e72f1d2ed3ea56ed93cb606d900aa120e8ed0c367774362fe8075907a7e850e6b1e",
            "2f8cdbbd3b26778da13862dc39a02687f719f38a51222e955fe537f615497016991cf77f1383b872bdd5eff9b217ed4a9e",
        ],
    );
    let forth = [
        "2259b71040041905261c83af8a84a0284f36bd34153d0202c760a2f75c53cd3810d9aa2c",
        "1d08c1070b28ad2a40f338936ad8f378d9bac90e67c7fe00fa024a5da6cf1e72c9bc2434",
        "34012df82cd0c838dd1dd3951df15ac6488fdbcd5b4f2fb6aa9dc328458dfe31e89220fe",
        "332be2b4a5b578f87b3f1835f14d6376c69b542c6230c0fd7f9affe2bf2772cfcdaa55f4",
        "2478ad2ee684ff657935dd3a2fb9c1a452a562f1734f0c99ac5a33e129b9dd0fbe7f90f7",
        "e43ec614a351a9abffc049e265a57b2bac038f4c88cea4a8cc33eb81bb307a8408e86653",
    ];
    frames(&mut ours, &mut theirs, forth);
    let back = [
        "57131b227f7d04b089ad3cdd630ca06732ca13166ae2e3a551f6e814ff302ad956f4f5c3",
        "5d939d1734c7beef9fa62a45ccbdce38f71742dea2e0ed62deae8d310f63e620de16f9cf",
        "0c91219df62cd1ac0337e33be2f7655091d0f88139ef3d012e2b39bdce0cac47c4e901ba",
        "6ff1c53bd0f5ed204c22d13b57465adfb75be50032aa94fba117fa6e6569e410d52b0a4f",
        "75282aa9d9c0b9f7585cfaf30fc748de28c4672818caf8ac2ba99cd1c9296cbeaaea7f86",
        "5dae612cff161db60d29c9c347bfdb23c729883992df841890df880e86e2175dbc0fcc18",
    ];
    frames(&mut theirs, &mut ours, back);
}

#[test]
fn static_keys_and_chacha() {
    let (own, other) = pair();
    let (mut ours, mut theirs) = handshake(
        (&own, &other),
        Cipher::ChaCha20Poly1305,
        [
            concat!(
                "c1a8e3af92e86a0db95d5a086b107e5e72f1d2ed3ea56ed93cb606d900aa120e",
                "78c42b44d8689134688b0e59cc419acf3f60a71f6cd8000b9a549b24bbea7823",
                "22cf5ad568bb8062ba49dd8a962857703b76e713da61d3b66c78f18acdbcf173c2",
            ),
            "2f8cdbbd3b26778da13862dc39a02687f719f38a51222e955fe537f6154970162a0be989e4e04312c45314215064803a1b",
        ],
    );
    let forth = [
        "56b736dd51e199c9b9aa345af6c722418ab9dcb8e685f54e6b4a89682e44396984640f4e",
        "985d99c5edef486a33fe635d1a7f725a655624d8683700f9b2763bd93e0f585ef49665d9",
        "30b2d9ca95b2cff2b37b31feac5b8a0996a3fc0b714451c360bb3a0301380072612cf8d3",
        "f827dd11216c7c6eca1da169af61363175c6afbdff1b18cf6776e5be35845b09ae5fd580",
        "a451ffc92a84f9712d34ce9dc7d079fca8a3edf94c3dcdf1e2c7edb301d1eac1811931ce",
        "7cdf34ab46343b9772de36796c0b2a52f22d239801e981e00932ff6f1c8f08186be0366e",
    ];
    frames(&mut ours, &mut theirs, forth);
    let back = [
        "f7466ecb092bbd7322c3c191740124f7b358f636ec11002c5cf6b7c6c3f09be5b8b215dd",
        "a057bbec00a827c6ffeac23801f55165fb59f97998e209749a5f17be48f8b6b1b7820bd9",
        "30a715ed4d13210635df1cf08238d6fdec0270fe6213e373686aa240ff1b4bea2326acd2",
        "791fa276eca0b6908bd0ad75123cf44f53d91bf28563d1bf77fa199d7f13bd5dd9301e6f",
        "a62fe571f8fe33af4ecf362cf92f3201062222d5374fd7aad08974f07a3b630e7418f984",
        "252a4b85992d22cf1175bf810fbd32776438398a64c24f3208e81d7c9c1ec702972b818e",
    ];
    frames(&mut theirs, &mut ours, back);
}
