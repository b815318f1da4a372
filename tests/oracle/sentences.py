"""Texts for embeddings: one or more in each of many languages, of 1 to 300 tokens and beyond, code, numbers, signs."""

SHORT = [
    "a", "?", "Hello", "The cat sits on the mat.", "A cat is sitting on a rug.", "Stock markets fell sharply on Monday.",
    "The quick brown fox jumps over the lazy dog.", "It's unbelievable, isn't it?", "UPPER CASE, lower case, MiXeD cAsE",
    "Der schnelle braune Fuchs springt über den faulen Hund.", "Straße, Größe, Übermut und Ärger.",
    "Le cœur a ses raisons que la raison ne connaît point.", "¿Dónde está la biblioteca? ¡Mañana!", "Não há nada de novo sob o sol.",
    "Tutti i giorni la stessa canzone.", "De hond loopt door het park.", "Zażółć gęślą jaźń.", "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Árvíztűrő tükörfúrógép", "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul'da ISPARTA", "Sævör grét áðan því úlpan var ónýt.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.", "Щастя не в грошах.", "Жълтата дюля беше щастлива.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΥΣ", "Խոսքը արծաթ է, լռությունը՝ ոսկի։", "ქართული ენა ძალიან ლამაზია.",
    "אני יכול לאכול זכוכית וזה לא מזיק לי.", "أنا قادر على أكل الزجاج و هذا لا يؤلمني.", "من می‌توانم بدونِ احساس درد شيشه بخورم.",
    "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती.", "আমি কাঁচ খেতে পারি, তাতে আমার কোনো ক্ষতি হয় না।", "நான் கண்ணாடி சாப்பிடுவேன்.",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ", "Tôi có thể ăn thủy tinh mà không hại gì.", "Saya boleh makan kaca dan ia tidak mencederakan saya.",
    "我能吞下玻璃而不伤身体。", "我能吞下玻璃而不傷身體。", "私はガラスを食べられます。それは私を傷つけません。カタカナ", "나는 유리를 먹을 수 있어요. 그래도 아프지 않아요.",
    "Ninaweza kula kioo bila kuumia.", "Би шил идэй чадна, надад хортой биш", "for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;", "3.14159 2.71828 1,000,000 42% $19.99 €5 #7 @you 10^-3",
    "😀 🚀 👨‍👩‍👧‍👦 🇩🇪 emoji ♥ ✓ → ∑ ∞ ≠", "tabs\tand\nlines\r\n and   many    spaces ​ ﻿ ­hyphen",
    "ﬁ ligature, ① ② ㍿ ﷺ, ｆｕｌｌ ｗｉｄｔｈ, a̐éö̲", "[CLS] is a token [SEP] and so is [MASK]",
    "pneumonoultramicroscopicsilicovolcanoconiosis " + "x" * 101 + " end",
]

PROSE = ("The daemon turns a model's file into programs for the Neural Engine, keeps them and every conversation's state warm, and "
         "serves streams of tokens over a socket. Nothing it answers depends on who else asks: the same request gives the same bytes, "
         "whatever was drafted, batched or shared. Вчера шёл дождь, сегодня солнце. Das Wetter wird morgen besser. 明天会更好。 ")

# Cut by words, so that their lengths spread over what one run reads.
LONG = [" ".join((PROSE * 9).split()[:n]) for n in (30, 60, 90, 130, 170, 200, 232)]
BEYOND = PROSE * 9  # more than 256 tokens, the model's longest text, and fewer than 512 of its positions are not enough

TEXTS = SHORT + LONG
