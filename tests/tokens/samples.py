# ruff: noqa: RUF001  the letters that look like others are what these texts are about
"""Texts of every class a conversation holds, made the same way each time.

`SAMPLES` maps a class to at least 4,000 characters of it; the benchmark reads it too. The sentences are ours, so
the texts may be shipped; what is drawn at random is drawn from a fixed seed.
"""

import base64
import json
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

LENGTH = 6_000

SENTENCES: dict[str, list[str]] = {
    "english": [
        "I'd like to move our appointment from Tuesday to Thursday afternoon, if there is still a slot free.",
        "The parcel was meant to arrive last week, but the tracking page hasn't changed since Monday morning.",
        "Before we decide anything, could you summarise what the three suppliers offered and where they differ?",
        "She closed the window, listened to the rain for a while, and then went back to the letter on her desk.",
        "Please check whether the refund has been issued; my bank says that nothing has been received so far.",
        "Thanks, that worked! One more question: can I use the same ticket for the return journey on Sunday?",
        "Although the results look promising, the sample is far too small to say anything about rare side effects.",
        "First fry the onions slowly until they are soft, then add the garlic and the chopped tomatoes.",
        "The committee agreed that the budget should be reviewed every quarter rather than once a year.",
        "You can cancel at any time before the shipment leaves our warehouse, and you'll get your money back.",
        "My daughter's bicycle has a flat tyre again, so we walked to school through the park this morning.",
        "In short: the service is reliable, the documentation is thin, and the price has doubled in two years.",
        "What would happen if both machines lost their connection at the same moment? Has anyone ever tried it?",
        "He was born in a small village near the coast and learned to sail before he could read.",
    ],
    "german": [
        "Könnten Sie bitte prüfen, ob die Rückerstattung für meine Bestellung schon veranlasst worden ist?",
        "Die Geschwindigkeitsbegrenzung auf der Umgehungsstraße wurde im vergangenen Frühjahr aufgehoben.",
        "Wir müssen die Krankenversicherungsbeiträge bis zum Monatsende überweisen, sonst entstehen Mahngebühren.",
        "Das Mädchen lief über die Brücke, während der Großvater am Ufer auf einer Bank saß und Zeitung las.",
        "Für die Übersetzung benötigen wir ungefähr drei Arbeitstage; größere Änderungen kosten zusätzlich.",
        "Natürlich können wir den Termin verschieben, aber die Räume sind nächste Woche größtenteils belegt.",
        "Der Verkäufer erklärte uns ausführlich, wie man die Waschmaschine anschließt und richtig pflegt.",
    ],
    "french": [
        "Pourriez-vous vérifier si le remboursement a été effectué ? Ma banque n'a toujours rien reçu à ce jour.",
        "L'été dernier, nous avons loué une petite maison près de la forêt, où il n'y avait ni télé ni réseau.",
        "Le conseil a décidé que les dépenses seraient désormais contrôlées chaque trimestre plutôt qu'une fois l'an.",
        "J'espère que vous êtes bien arrivés ; appelez-moi dès que possible pour me dire où l'on se retrouve.",
        "Les élèves préféraient étudier à la bibliothèque, car le café d'à côté était trop bruyant l'après-midi.",
        "Ça m'étonnerait qu'il réussisse à réparer ce vieux vélo avant la fête de dimanche prochain.",
    ],
    "spanish": [
        "Quisiera cambiar la dirección de envío de mi pedido; todavía no ha salido del almacén, según la página.",
        "¿Podría decirme cuántos días tarda la devolución? El banco dice que aún no ha recibido ningún ingreso.",
        "El año pasado viajamos por el norte de España y comimos muy bien en una pequeña posada de montaña.",
        "Aunque llovía sin parar, los niños salieron a jugar al jardín con sus botas y sus paraguas amarillos.",
        "La reunión empezará a las nueve y media; después visitaremos la fábrica con los nuevos compañeros.",
        "Mañana por la tarde le enviaré un resumen con las tres propuestas y la opinión del área jurídica.",
    ],
    "polish": [
        "Chciałbym zmienić adres dostawy mojego zamówienia, ponieważ w przyszłym tygodniu się przeprowadzam.",
        "Czy mógłby pan sprawdzić, dlaczego płatność została odrzucona, skoro na koncie są wystarczające środki?",
        "Wczoraj wieczorem poszliśmy nad rzekę, żeby zobaczyć zachód słońca i posłuchać śpiewu ptaków.",
        "Proszę włożyć ciasto do piekarnika i piec przez czterdzieści minut, aż się ładnie zarumieni.",
        "Mój brat uczy się grać na skrzypcach, choć sąsiedzi wcale nie są z tego szczególnie zadowoleni.",
    ],
    "turkish": [
        "Siparişimin teslimat adresini değiştirmek istiyorum, çünkü önümüzdeki hafta başka bir şehre taşınıyorum.",
        "Geçen yaz küçük bir sahil kasabasında kaldık; her sabah denize girip öğleden sonra kitap okuduk.",
        "Toplantıda konuşulanları özetleyip yarın öğlene kadar bütün çalışanlara gönderebilir misiniz?",
        "Öğretmen çocuklara ağaçların nasıl büyüdüğünü ve yağmurun neden önemli olduğunu anlattı.",
        "Bankanın açıklamasına göre ödeme, güvenlik kontrolü tamamlanmadığı için henüz gerçekleştirilmemiş.",
    ],
    "vietnamese": [
        "Tôi muốn thay đổi địa chỉ giao hàng vì tuần sau gia đình tôi sẽ chuyển sang một thành phố khác.",
        "Xin vui lòng kiểm tra xem khoản tiền hoàn lại đã được chuyển vào tài khoản ngân hàng của tôi hay chưa.",
        "Buổi sáng hôm qua trời mưa rất to nên chúng tôi phải ở nhà đọc sách và nấu ăn cùng nhau.",
        "Cô giáo giải thích cho học sinh tại sao nước biển lại mặn và các dòng sông chảy về đâu.",
        "Nếu bạn không hài lòng với sản phẩm, bạn có thể trả lại trong vòng ba mươi ngày kể từ khi nhận hàng.",
    ],
    "chinese": [
        "我想修改一下订单的收货地址，因为下个星期我们全家要搬到另外一个城市去住。",
        "请您帮我查一下退款到了没有，银行那边说到现在为止还没有收到任何款项。",
        "昨天晚上下了一场大雨，河水涨得很快，村里的年轻人都去帮忙加固堤坝了。",
        "委员会认为，与其每年检查一次预算，不如每个季度检查一次，这样更容易发现问题。",
        "老师给孩子们讲了树木是怎样生长的，还解释了为什么雨水对庄稼那么重要。",
        "这家饭馆的豆腐做得特别好吃，价格也不贵，周末常常要排半个小时的队。",
        "如果两台服务器同时断开连接，会发生什么情况？有没有人认真测试过？",
        "她关上窗户，听了一会儿雨声，然后回到书桌前继续写那封没有写完的信。",
        "虽然初步结果令人鼓舞，但样本数量太少，还不能对罕见的副作用下任何结论。",
    ],
    "chinese_traditional": [
        "我想修改訂單的收件地址，因為下個星期我們全家要搬到另外一個城市去住。",
        "麻煩您幫我查詢退款的進度，銀行說到目前為止還沒有收到任何款項。",
        "昨天晚上下了一場大雨，河水漲得很快，村裡的年輕人都去幫忙加固堤防。",
        "這間餐廳的豆腐做得特別好吃，價格也不貴，週末常常要排半個小時的隊。",
        "雖然初步結果令人振奮，但樣本數量太少，還不能對罕見的副作用下任何結論。",
    ],
    "japanese": [
        "来週別の町に引っ越すことになったので、注文した商品の届け先を変更していただけますか。",
        "返金の手続きが済んでいるかどうか、確認していただけないでしょうか。銀行にはまだ入金がないそうです。",
        "昨夜は大雨が降って川の水かさが増したため、村の若者たちは堤防の補強を手伝いに出かけました。",
        "彼女は窓を閉めてしばらく雨の音を聞き、それから机に戻って書きかけの手紙を続けた。",
        "もし二台のサーバーが同時に接続を失ったら、どうなるのでしょうか。試した人はいますか。",
        "このレストランのカレーはとてもおいしくて、週末には三十分も並ばなければなりません。",
        "先生は子どもたちに、木がどのように育つのか、なぜ雨が大切なのかをていねいに説明しました。",
    ],
    "korean": [
        "다음 주에 다른 도시로 이사하게 되어서 주문한 상품의 배송지를 변경하고 싶습니다.",
        "환불이 처리되었는지 확인해 주시겠어요? 은행에서는 아직 입금된 금액이 없다고 합니다.",
        "어젯밤에 비가 많이 와서 강물이 불어나자 마을 젊은이들이 모두 나와 둑을 쌓는 일을 도왔습니다.",
        "그녀는 창문을 닫고 잠시 빗소리를 듣다가 책상으로 돌아가 쓰다 만 편지를 이어서 썼다.",
        "두 서버의 연결이 동시에 끊어지면 어떤 일이 일어날까요? 실제로 시험해 본 사람이 있나요?",
        "이 식당은 두부찌개가 아주 맛있고 값도 싸서 주말에는 삼십 분씩 줄을 서야 합니다.",
        "선생님은 아이들에게 나무가 어떻게 자라는지, 비가 왜 중요한지 자세히 설명해 주었습니다.",
    ],
    "russian": [
        "Я хотел бы изменить адрес доставки, потому что на следующей неделе мы переезжаем в другой город.",
        "Проверьте, пожалуйста, оформлен ли возврат денег: банк утверждает, что до сих пор ничего не поступило.",
        "Вчера вечером прошёл сильный дождь, река вышла из берегов, и молодёжь помогала укреплять плотину.",
        "Она закрыла окно, немного послушала шум дождя и вернулась к письму, лежавшему на столе.",
        "Что произойдёт, если оба сервера одновременно потеряют связь? Кто-нибудь когда-нибудь это проверял?",
        "Хотя предварительные результаты обнадёживают, выборка слишком мала, чтобы делать какие-либо выводы.",
        "Учительница объяснила детям, как растут деревья и почему дождь так важен для урожая.",
    ],
    "greek": [
        "Θα ήθελα να αλλάξω τη διεύθυνση παράδοσης, γιατί την επόμενη εβδομάδα μετακομίζουμε σε άλλη πόλη.",
        "Μπορείτε να ελέγξετε αν έγινε η επιστροφή χρημάτων; Η τράπεζα λέει ότι δεν έχει λάβει τίποτα ακόμη.",
        "Χθες το βράδυ έβρεξε πολύ, το ποτάμι φούσκωσε και οι νέοι του χωριού βοήθησαν να ενισχυθεί το φράγμα.",
        "Έκλεισε το παράθυρο, άκουσε για λίγο τη βροχή και γύρισε στο γράμμα που ήταν πάνω στο γραφείο της.",
    ],
    "arabic": [
        "أود تغيير عنوان التوصيل لأننا سننتقل إلى مدينة أخرى في الأسبوع القادم إن شاء الله.",
        "هل يمكنكم التأكد من إتمام عملية استرداد المبلغ؟ يقول البنك إنه لم يستلم أي شيء حتى الآن.",
        "هطل مطر غزير مساء أمس وارتفع منسوب النهر، فخرج شباب القرية لمساعدة العمال في تقوية السد.",
        "أغلقت النافذة واستمعت قليلا إلى صوت المطر، ثم عادت إلى الرسالة التي تركتها على المكتب.",
        "شرحت المعلمة للأطفال كيف تنمو الأشجار ولماذا يعد المطر مهما للزراعة في هذه المنطقة.",
        "ماذا سيحدث لو فقد الخادمان الاتصال في اللحظة نفسها؟ هل جرب أحد ذلك من قبل؟",
    ],
    "persian": [
        "می‌خواهم نشانی تحویل سفارشم را عوض کنم، چون هفتهٔ آینده به شهر دیگری اسباب‌کشی می‌کنیم.",
        "لطفاً بررسی کنید که آیا پول من بازگردانده شده است یا نه؛ بانک می‌گوید هنوز چیزی دریافت نکرده است.",
        "دیشب باران شدیدی بارید و آب رودخانه بالا آمد، جوانان روستا برای تقویت سد به کمک رفتند.",
        "پنجره را بست، کمی به صدای باران گوش داد و سپس به نامه‌ای که روی میز مانده بود برگشت.",
    ],
    "hebrew": [
        "אני רוצה לשנות את כתובת המשלוח כי בשבוע הבא אנחנו עוברים לגור בעיר אחרת.",
        "האם תוכלו לבדוק אם ההחזר הכספי כבר בוצע? בבנק אומרים שעדיין לא התקבל שום סכום.",
        "אתמול בערב ירד גשם חזק והנהר עלה על גדותיו, וצעירי הכפר יצאו לעזור לחזק את הסכר.",
        "היא סגרה את החלון, הקשיבה קצת לקול הגשם וחזרה אל המכתב שנשאר על השולחן.",
    ],
    "hindi": [
        "मैं अपने ऑर्डर का पता बदलना चाहता हूँ क्योंकि अगले सप्ताह हम दूसरे शहर में रहने जा रहे हैं।",
        "कृपया जाँच कीजिए कि पैसे वापस किए गए हैं या नहीं, बैंक का कहना है कि अभी तक कुछ नहीं मिला है।",
        "कल रात बहुत तेज़ बारिश हुई, नदी का पानी बढ़ गया और गाँव के युवक बाँध को मज़बूत करने में जुट गए।",
        "उसने खिड़की बंद की, थोड़ी देर बारिश की आवाज़ सुनी और फिर मेज़ पर रखी चिट्ठी लिखने लगी।",
        "अध्यापिका ने बच्चों को समझाया कि पेड़ कैसे बढ़ते हैं और वर्षा खेती के लिए क्यों ज़रूरी है।",
    ],
    "bengali": [
        "আমি আমার অর্ডারের ঠিকানা বদলাতে চাই, কারণ আগামী সপ্তাহে আমরা অন্য শহরে চলে যাচ্ছি।",
        "দয়া করে দেখুন টাকা ফেরত দেওয়া হয়েছে কি না, ব্যাংক বলছে এখনও কিছুই জমা পড়েনি।",
        "গতকাল রাতে প্রচণ্ড বৃষ্টি হয়েছিল, নদীর জল বেড়ে গিয়েছিল এবং গ্রামের ছেলেরা বাঁধ মেরামতে সাহায্য করেছিল।",
    ],
    "tamil": [
        "அடுத்த வாரம் நாங்கள் வேறு நகரத்திற்கு குடிபெயர்வதால் என் முகவரியை மாற்ற விரும்புகிறேன்.",
        "பணம் திரும்பச் செலுத்தப்பட்டதா என்று தயவுசெய்து பாருங்கள், வங்கி இன்னும் எதுவும் வரவில்லை என்கிறது.",
        "நேற்று இரவு பலத்த மழை பெய்தது, ஆற்றில் வெள்ளம் பெருகியது, இளைஞர்கள் அணையைச் சரிசெய்ய உதவினார்கள்.",
    ],
    "thai": [
        "ฉันต้องการเปลี่ยนที่อยู่จัดส่งสินค้า เพราะสัปดาห์หน้าครอบครัวของเราจะย้ายไปอยู่อีกเมืองหนึ่ง",
        "ช่วยตรวจสอบหน่อยได้ไหมว่าคืนเงินให้แล้วหรือยัง ธนาคารบอกว่ายังไม่ได้รับเงินใด ๆ เลย",
        "เมื่อคืนฝนตกหนักมาก น้ำในแม่น้ำสูงขึ้น คนหนุ่มสาวในหมู่บ้านจึงออกไปช่วยกันซ่อมเขื่อน",
        "เธอปิดหน้าต่าง ฟังเสียงฝนอยู่ครู่หนึ่ง แล้วกลับไปเขียนจดหมายที่วางค้างไว้บนโต๊ะ",
        "คุณครูอธิบายให้เด็ก ๆ ฟังว่าต้นไม้เติบโตอย่างไร และทำไมฝนจึงสำคัญต่อการเพาะปลูก",
    ],
    "georgian": [
        "მინდა შევცვალო მიწოდების მისამართი, რადგან მომავალ კვირას სხვა ქალაქში გადავდივართ.",
        "გთხოვთ შეამოწმოთ, დაბრუნდა თუ არა თანხა, ბანკი ამბობს, რომ ჯერ არაფერი მიუღია.",
        "გუშინ საღამოს ძლიერი წვიმა იყო და სოფლის ახალგაზრდები კაშხლის გამაგრებას ეხმარებოდნენ.",
    ],
}

EMOJI = "😀😂🙏👍🎉🔥✨🚀💡🐛✅❌⚠️❤️🤔👀🥳😭🙌🌍📦📝🔧🧪🇩🇪🇯🇵👩‍💻👨‍👩‍👧👍🏽🙋🏾‍♀️"
WORDS = ["user", "order", "total", "price", "status", "item", "city", "amount", "error", "region", "retry", "limit"]


def _prose(rng: random.Random, sentences: list[str]) -> str:
    return " ".join(rng.choice(sentences) for _ in range(LENGTH // len(sentences[0]) + 12))


def _record(rng: random.Random) -> dict[str, object]:
    street = f"{rng.randrange(1, 300)} {rng.choice(WORDS).title()} Street"
    return {
        "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "user_id": f"usr_{rng.getrandbits(60):x}",
        "status": rng.choice(["pending", "shipped", "delivered", "cancelled"]),
        "total": round(rng.uniform(1, 2000), 2),
        "quantity": rng.randrange(1, 20),
        "created_at": _moment(rng).isoformat(),
        "address": {"street": street, "zip": f"{rng.randrange(99999):05}"},
        "items": [{"sku": f"SKU-{rng.randrange(10**6)}", rng.choice(WORDS): rng.choice([True, False, None])}],
    }


def _moment(rng: random.Random) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=rng.randrange(10**10))


def _lines(line: Callable[[], str]) -> str:
    made: list[str] = []
    while sum(map(len, made)) < LENGTH:
        made.append(line())
    return "\n".join(made)


def _log_line(rng: random.Random) -> str:
    level = rng.choice(["INFO", "DEBUG", "WARNING", "ERROR"])
    place = f"{rng.choice(WORDS)}.{rng.choice(WORDS)}_handler"
    said = rng.choice(
        [
            f"request {rng.getrandbits(64):016x} took {rng.uniform(0, 900):.3f} ms, status={rng.choice([200, 404, 503])}",
            f"GET /api/v1/{rng.choice(WORDS)}/{rng.randrange(10**8)} from 10.{rng.randrange(255)}.{rng.randrange(255)}.7:{rng.randrange(65535)}",
            f"retrying {rng.choice(WORDS)} (attempt {rng.randrange(9)}) trace={rng.getrandbits(128):032x}",
            f"segfault at 0x{rng.getrandbits(48):012x} ip 0x{rng.getrandbits(48):012x} in lib{rng.choice(WORDS)}.so",
        ]
    )
    return f"{_moment(rng).isoformat(sep=' ', timespec='milliseconds')} [{level}] {place}: {said}"


CODE = '''\
import functools
from dataclasses import dataclass, field

MAX_RETRIES = 5


@dataclass(frozen=True)
class OrderLine:
    sku: str
    quantity: int = 1
    unit_price_cents: int = field(default=0, repr=False)

    @property
    def total(self) -> int:
        return self.quantity * self.unit_price_cents


def merge_sorted(left: list[int], right: list[int]) -> list[int]:
    """Merge two sorted lists into one sorted list."""
    merged, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return merged + left[i:] + right[j:]


async def fetch_all(session, urls, *, timeout=30.0):
    for attempt in range(MAX_RETRIES):
        try:
            async with session.get(urls[attempt % len(urls)], timeout=timeout) as response:
                response.raise_for_status()
                return await response.json()
        except (TimeoutError, ConnectionError) as error:
            logger.warning("attempt %d failed: %r", attempt + 1, error)
            await asyncio.sleep(2 ** attempt * 0.1)
    raise RuntimeError(f"gave up after {MAX_RETRIES} attempts")
'''

CODE_TS = """\
export const useDebounce = <T,>(value: T, delayMs = 250): T => {
  const [debounced, setDebounced] = useState<T>(value);
  useEffect(() => {
    const handle = setTimeout(() => setDebounced(value), delayMs);
    return () => clearTimeout(handle);
  }, [value, delayMs]);
  return debounced;
};

interface InvoiceRow { id: string; customerName: string; amountCents: number; paidAt?: Date | null }

export function groupByCustomer(rows: readonly InvoiceRow[]): Map<string, InvoiceRow[]> {
  const groups = new Map<string, InvoiceRow[]>();
  for (const row of rows) {
    const known = groups.get(row.customerName) ?? [];
    known.push(row);
    groups.set(row.customerName, known);
  }
  return groups;
}

if (process.env.NODE_ENV !== 'production') { console.debug(`loaded ${rows.length} rows in ${(t1 - t0).toFixed(1)}ms`); }
"""

SQL = """\
SELECT c.CUSTOMER_ID, c.LAST_NAME, COUNT(*) AS ORDER_COUNT, SUM(o.TOTAL_CENTS) / 100.0 AS REVENUE
FROM CUSTOMERS c LEFT JOIN ORDERS o ON o.CUSTOMER_ID = c.CUSTOMER_ID AND o.STATUS NOT IN ('CANCELLED', 'REFUNDED')
WHERE c.COUNTRY_CODE = 'PT' AND o.CREATED_AT >= DATE '2026-01-01' GROUP BY c.CUSTOMER_ID, c.LAST_NAME
HAVING COUNT(*) > 3 ORDER BY REVENUE DESC LIMIT 50;
"""

HTML = """\
<div class="card shadow-sm" id="invoice-table"><h2 class="title">Open invoices</h2>
<table><thead><tr><th>Number</th><th>Due</th></tr></thead><tbody>
<tr data-row="17"><td><a href="/invoices/17?tab=lines&amp;page=2">INV-0017</a></td><td>2026-03-01</td></tr>
</tbody></table><script src="https://cdn.example.com/app.min.js" defer></script></div>
"""

MARKDOWN = """\
## What changed

- **Faster start**: heavy modules are loaded on first use (`import` fell from 310 ms to 42 ms)
- Fixed a crash when `config.toml` has no `[server]` table, see [the issue](https://example.com/issues/482)

| name | before | after |
|------|-------:|------:|
| load | 1.20 s | 0.31 s |

```bash
pip install --upgrade example && example check --strict ./data
```
"""


def _samples() -> dict[str, str]:
    rng = random.Random(20_26)
    made = {name: _prose(rng, sentences) for name, sentences in SENTENCES.items()}
    blocks = {"code": CODE, "typescript": CODE_TS, "sql": SQL, "html": HTML, "markdown": MARKDOWN}
    made |= {name: block * (LENGTH // len(block) + 1) for name, block in blocks.items()}
    records = [_record(rng) for _ in range(24)]
    made["json_pretty"] = json.dumps(records, indent=2)
    made["json_minified"] = json.dumps(records, separators=(",", ":"))
    made["json_ids"] = json.dumps([f"{rng.getrandbits(96):024x}" for _ in range(240)], separators=(",", ":"))
    made["base64"] = base64.b64encode(rng.randbytes(LENGTH)).decode()
    made["base64_lines"] = base64.encodebytes(rng.randbytes(LENGTH)).decode()
    made["hex"] = rng.randbytes(LENGTH // 2).hex()
    made["uuids"] = _lines(lambda: str(uuid.UUID(int=rng.getrandbits(128), version=4)))
    made["base36"] = _lines(lambda: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=25)))
    made["logs"] = _lines(lambda: _log_line(rng))
    made["csv"] = _lines(lambda: ",".join(f"{rng.uniform(-1000, 1000):.4f}" for _ in range(8)))
    made["urls"] = _lines(
        lambda: (
            f"https://{rng.choice(WORDS)}.example.com/{rng.choice(WORDS)}/{rng.getrandbits(40):x}?page={rng.randrange(99)}&sig={base64.urlsafe_b64encode(rng.randbytes(12)).decode()}"
        )
    )
    made["emoji"] = _lines(lambda: "".join(rng.choices(EMOJI, k=40)))
    made["emoji_chat"] = _lines(
        lambda: f"{rng.choice(SENTENCES['english'])} {''.join(rng.choices('😀😂🙏👍🎉🔥✨🚀', k=3))}"
    )
    everything = [sentence for sentences in SENTENCES.values() for sentence in sentences]
    made["mixed"] = _lines(lambda: f"{rng.choice(everything)} {json.dumps({rng.choice(WORDS): rng.getrandbits(40)})}")
    return made


SAMPLES: dict[str, str] = _samples()
